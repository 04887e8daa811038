// SPDX-License-Identifier: BSD-3-Clause
// gpushm-info's report for programs.
#include "config.h"
#include "tools/report.hpp"

#include "tools/json_writer.hpp"

#include <cstring>

namespace gpushm::tools {

namespace {

void text_or_null(JsonWriter &json, const std::string &key, const std::string &value) {
    value.empty() ? json.null(key) : json.text(key, value);
}

template <typename Integer>
void number_or_null(JsonWriter &json, const std::string &key, const std::optional<Integer> &value) {
    value ? json.number(key, static_cast<uint64_t>(*value)) : json.null(key);
}

void add_ucx(JsonWriter &json, const std::string &key, const std::optional<UcxInstallation> &ucx) {
    if (!ucx) {
        json.null(key);
        return;
    }
    json.begin_object(key);
    json.text("library", ucx->libucp_path);
    json.text("version", to_string(ucx->version));
    json.boolean("served", why_not_served(*ucx).empty());
    json.text("loading",
              loading_of(ucx->version) == Loading::plugin_path ? "UCX_PLUGIN_PATH" : "LD_PRELOAD");
    json.boolean("statistics", ucx->statistics);
    json.boolean("own_cuda", ucx->own_cuda);
    json.end_object();
}

void add_open_mpi(JsonWriter &json, const std::optional<OpenMpiInstallation> &open_mpi) {
    if (!open_mpi) {
        json.null("open_mpi");
        return;
    }
    json.begin_object("open_mpi");
    json.text("mpirun", open_mpi->mpirun);
    text_or_null(json, "version", open_mpi->version ? to_string(*open_mpi->version) : "");
    open_mpi->has_pml_ucx ? json.boolean("has_pml_ucx", *open_mpi->has_pml_ucx)
                          : json.null("has_pml_ucx");
    json.begin_array("pml_settings");
    for (const McaSetting &setting : open_mpi->pml_settings) {
        json.begin_object();
        json.text("file", setting.file);
        json.text("value", setting.value);
        json.boolean("overrides_environment", setting.source == McaSource::override_file);
        json.end_object();
    }
    json.end_array();
    text_or_null(json, "component_directory", open_mpi->enabled_in);
    add_ucx(json, "ucx", open_mpi->ucx);
    json.end_object();
}

void add_gpu(JsonWriter &json, const Gpu &gpu) {
    json.begin_object();
    text_or_null(json, "name", gpu.name);
    text_or_null(json, "uuid", gpu.uuid);
    text_or_null(json, "pci_id", gpu.pci_id);
    json.number("memory_bytes", gpu.memory_bytes);
    number_or_null(json, "numa_node", gpu.numa_node);
    json.text("compute_mode", compute_mode_name(gpu.compute_mode));
    json.begin_array("reaches");
    for (size_t other = 0; other < gpu.reaches.size(); ++other) {
        if (gpu.reaches[other]) {
            json.number("", other);
        }
    }
    json.end_array();
    json.end_object();
}

void add_cuda(JsonWriter &json, const GpuSurvey &survey) {
    json.begin_object("cuda");
    json.text("driver", survey.driver == GpuSurvey::Driver::usable   ? "usable"
                        : survey.driver == GpuSurvey::Driver::absent ? "absent"
                                                                     : "unusable");
    text_or_null(json, "library", survey.library);
    text_or_null(json, "error", survey.driver_error);
    number_or_null(json, "version", survey.driver_version);
    json.begin_array("gpus");
    for (const Gpu &gpu : survey.gpus) {
        add_gpu(json, gpu);
    }
    json.end_array();
    json.end_object();
}

void add_node(JsonWriter &json, const NodeLimits &limits) {
    json.begin_object("node");
    text_or_null(json, "memory_file_error",
                 limits.memory_file_error != 0 ? strerror(limits.memory_file_error) : "");
    json.boolean("attach_works", limits.attach_error == 0 && limits.memory_file_error == 0);
    text_or_null(json, "attach_error",
                 limits.attach_error != 0 ? strerror(limits.attach_error) : "");
    json.boolean("cma_works", limits.cma_error == 0 && limits.memory_file_error == 0);
    number_or_null(json, "shm_size_bytes", limits.shm_size_bytes);
    number_or_null(json, "shm_free_bytes", limits.shm_free_bytes);
    number_or_null(json, "locked_memory_bytes", limits.locked_memory_bytes);
    number_or_null(json, "open_files", limits.open_files);
    text_or_null(json, "pid_namespace", limits.pid_namespace);
    json.end_object();
}

}  // namespace

std::string json_report(const Findings &findings, const Verdict &verdict) {
    JsonWriter json;
    json.begin_object();
    json.boolean("can_run", verdict.can_run);
    json.text("summary", verdict.summary);
    json.begin_array("advice");
    for (const std::string &advice : verdict.advice) {
        json.text("", advice);
    }
    json.end_array();
    json.begin_object("gpushm");
    json.text("version", PACKAGE_VERSION);
    text_or_null(json, "directory", findings.files.directory);
    json.text("serves_ucx", abi::served_versions());
    json.end_object();
    add_ucx(json, "ucx", findings.ucx);
    add_open_mpi(json, findings.open_mpi);
    add_cuda(json, findings.gpu_survey);
    add_node(json, findings.limits);
    json.end_object();
    return json.result() + "\n";
}

}  // namespace gpushm::tools
