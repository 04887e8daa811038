// SPDX-License-Identifier: BSD-3-Clause
// What gpushm-info concludes, and the form of its reports.
#include "tools/findings.hpp"
#include "tools/json_writer.hpp"
#include "tools/report.hpp"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace gpushm::tools {
namespace {

const char *const kNoEntries[] = {nullptr};

Findings good_findings() {
    Findings findings;
    findings.files.directory = "/opt/lib/gpushm";
    findings.ucx = UcxInstallation{"/usr/lib/libucp.so.0", {1, 16, 0}, false, false};
    findings.gpu_survey.driver = GpuSurvey::Driver::usable;
    findings.gpu_survey.driver_version = 12040;
    findings.gpu_survey.library = "/usr/lib/libcuda.so.1";
    for (unsigned i = 0; i < 2; ++i) {
        Gpu gpu;
        gpu.name = "Model \"X\"";
        gpu.pci_id = "0000:0" + std::to_string(i) + ":00.0";
        gpu.numa_node = i;
        gpu.memory_bytes = size_t{80} << 30;
        gpu.reaches = {true, true};
        findings.gpu_survey.gpus.push_back(gpu);
    }
    return findings;
}

std::string advice_of(const Findings &findings) {
    std::string all;
    for (const std::string &line : judge(findings, Environment(kNoEntries)).advice) {
        all += line + "\n";
    }
    return all;
}

bool can_run(const Findings &findings) {
    return judge(findings, Environment(kNoEntries)).can_run;
}

TEST(ToolsVerdict, a_complete_machine_needs_no_advice) {
    EXPECT_TRUE(can_run(good_findings()));
    EXPECT_EQ(advice_of(good_findings()), "");
}

TEST(ToolsVerdict, gpushm_cannot_run_without_its_files_a_served_ucx_or_peers) {
    Findings findings = good_findings();
    findings.files = {{}, {"/a", "/b"}};
    EXPECT_FALSE(can_run(findings));
    EXPECT_NE(advice_of(findings).find("/a, /b"), std::string::npos);

    findings = good_findings();
    findings.ucx.reset();
    EXPECT_FALSE(can_run(findings));
    EXPECT_NE(advice_of(findings).find("libucx0"), std::string::npos);

    findings = good_findings();
    findings.ucx->version.minor = 12;
    EXPECT_FALSE(can_run(findings));

    findings = good_findings();
    findings.limits.attach_error = EACCES;
    EXPECT_FALSE(can_run(findings));
    EXPECT_NE(advice_of(findings).find("Permission denied"), std::string::npos);
}

TEST(ToolsVerdict, the_ucx_of_open_mpi_is_enough) {
    Findings findings = good_findings();
    findings.open_mpi =
        OpenMpiInstallation{"/usr/bin/mpirun", Version{5, 0, 8}, true, {}, findings.ucx, {}};
    findings.ucx.reset();
    EXPECT_TRUE(open_mpi_has_other_ucx(findings));
    EXPECT_TRUE(can_run(findings));
    EXPECT_EQ(advice_of(findings), "");
}

TEST(ToolsVerdict, plain_mpirun_is_enough_where_the_component_is_enabled) {
    Findings findings = good_findings();
    const auto summary = [&](const char *setting) {
        const char *const entries[] = {setting, nullptr};
        return judge(findings, Environment(entries)).summary;
    };
    findings.open_mpi =
        OpenMpiInstallation{"/usr/bin/mpirun", Version{5, 0, 8}, true, {}, findings.ucx, {}};
    EXPECT_NE(summary("A=b").find("start programs by gpushm-run"), std::string::npos);
    findings.open_mpi->enabled_in = "/home/user/.openmpi/components";
    EXPECT_NE(summary("A=b").find("plain mpirun uses gpushm (gpushm-openmpi is enabled in "
                                  "/home/user/.openmpi/components)"),
              std::string::npos);
    const std::string text = text_report(findings, judge(findings, Environment(kNoEntries)));
    EXPECT_NE(text.find("component         /home/user/.openmpi/components\n"), std::string::npos)
        << text;
    EXPECT_NE(text.find("needs             nothing more"), std::string::npos) << text;
    EXPECT_EQ(text.find("four more"), std::string::npos) << text;
    const std::string json = json_report(findings, judge(findings, Environment(kNoEntries)));
    EXPECT_NE(json.find("\"component_directory\": \"/home/user/.openmpi/components\""),
              std::string::npos)
        << json;

    // The obstacles for the component.
    EXPECT_NE(summary("UCX_GPUSHM_OPENMPI=n").find("start programs by gpushm-run"),
              std::string::npos);
    EXPECT_NE(summary("OMPI_MCA_pml=ob1").find("start programs by gpushm-run"), std::string::npos);
    EXPECT_EQ(summary("OMPI_MCA_pml=ucx").find("start programs by gpushm-run"), std::string::npos);
    findings.open_mpi->pml_settings = {
        {"/etc/openmpi/openmpi-mca-params.conf", "^ucx", McaSource::system}};
    EXPECT_EQ(summary("A=b").find("start programs by gpushm-run"), std::string::npos);
    findings.open_mpi->pml_settings = {
        {"/home/user/.openmpi/mca-params.conf", "ob1", McaSource::user}};
    EXPECT_NE(summary("A=b").find("start programs by gpushm-run"), std::string::npos);
}

TEST(ToolsVerdict, no_gpu_is_no_hindrance_but_said) {
    Findings findings = good_findings();
    findings.gpu_survey = {};
    const Verdict verdict = judge(findings, Environment(kNoEntries));
    EXPECT_TRUE(verdict.can_run);
    EXPECT_NE(verdict.summary.find("host memory only"), std::string::npos);
}

TEST(ToolsVerdict, gpus_that_are_not_there_may_be_hidden) {
    Findings findings = good_findings();
    findings.gpu_survey = {};
    EXPECT_NE(advice_of(findings).find("no CUDA driver"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("--gpus all"), std::string::npos);
    EXPECT_EQ(advice_of(findings).find("install the NVIDIA driver"), std::string::npos);

    findings.gpu_survey.has_nvidia_device = true;
    EXPECT_NE(advice_of(findings).find("install the NVIDIA driver"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("--gpus all"), std::string::npos);

    findings.gpu_survey.driver = GpuSurvey::Driver::usable;
    EXPECT_NE(advice_of(findings).find("CUDA_VISIBLE_DEVICES"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("--gpus all"), std::string::npos);
}

TEST(ToolsVerdict, gpus_without_peer_access_are_told_in_one_line) {
    Findings findings = good_findings();
    findings.gpu_survey.gpus[0].reaches[1] = false;
    EXPECT_NE(advice_of(findings).find("GPU 0 and GPU 1 have no peer access"), std::string::npos);

    const Gpu lonely = findings.gpu_survey.gpus[0];
    findings.gpu_survey.gpus.assign(8, lonely);
    for (size_t i = 0; i < 8; ++i) {
        findings.gpu_survey.gpus[i].reaches.assign(8, false);
        findings.gpu_survey.gpus[i].reaches[i] = true;
    }
    findings.gpu_survey.gpus[2].reaches[3] = findings.gpu_survey.gpus[3].reaches[2] = true;
    EXPECT_EQ(
        advice_of(findings),
        "27 of 28 pairs of GPUs have no peer access: data between them goes through host memory\n");
}

TEST(ToolsVerdict, an_exclusive_gpu_serves_one_process_and_a_prohibited_one_none) {
    Findings findings = good_findings();
    findings.gpu_survey.gpus[0].compute_mode = 3;
    findings.gpu_survey.gpus[1].compute_mode = 3;
    EXPECT_EQ(advice_of(findings),
              "GPU 0,1: compute mode \"exclusive process\", one process at a time can use it: fine "
              "with one rank for "
              "each GPU, else nvidia-smi -i 0,1 -c DEFAULT\n");
    findings.gpu_survey.gpus[0].compute_mode = 0;
    findings.gpu_survey.gpus[1].compute_mode = 2;
    EXPECT_EQ(
        advice_of(findings),
        "GPU 1: compute mode \"prohibited\", no process can use it: nvidia-smi -i 1 -c DEFAULT\n");
}

TEST(ToolsVerdict, a_refused_memory_file_is_no_matter_of_open_files) {
    Findings findings = good_findings();
    findings.limits.memory_file_error = EPERM;
    EXPECT_FALSE(can_run(findings));
    EXPECT_NE(advice_of(findings).find("memfd_create: Operation not permitted"), std::string::npos)
        << advice_of(findings);
    EXPECT_EQ(advice_of(findings).find("ulimit"), std::string::npos);
    EXPECT_EQ(advice_of(findings).find("/proc"), std::string::npos) << "which was not tried";
    findings.limits.memory_file_error = EMFILE;
    EXPECT_NE(advice_of(findings).find("ulimit -n"), std::string::npos);
}

TEST(ToolsVerdict, an_mpi_that_is_not_open_mpi_is_not_served) {
    Findings findings = good_findings();
    findings.open_mpi = OpenMpiInstallation{"/opt/bin/mpirun", {}, {}, {}, {}, {}};
    EXPECT_NE(advice_of(findings).find("/opt/bin/mpirun is not Open MPI's"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("not served"), std::string::npos) << advice_of(findings);
}

std::string advice_on_driver(int result, const std::string &error) {
    Findings findings = good_findings();
    findings.gpu_survey = {};
    findings.gpu_survey.driver = GpuSurvey::Driver::unusable;
    findings.gpu_survey.library = "/opt/stubs/libcuda.so.1";
    findings.gpu_survey.driver_result = result;
    findings.gpu_survey.driver_error = error;
    return advice_of(findings);
}

TEST(ToolsVerdict, what_is_wrong_with_a_driver_decides_what_to_do) {
    EXPECT_NE(advice_on_driver(CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY")
                  .find("take its folder out of LD_LIBRARY_PATH"),
              std::string::npos);
    EXPECT_EQ(
        advice_on_driver(CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY").find("reinstall"),
        std::string::npos);
    EXPECT_NE(advice_on_driver(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "").find("reboot"),
              std::string::npos);
    EXPECT_NE(advice_on_driver(CUDA_ERROR_SYSTEM_NOT_READY, "").find("fabricmanager"),
              std::string::npos);
    EXPECT_NE(
        advice_on_driver(CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN").find("/opt/stubs/libcuda.so.1"),
        std::string::npos);

    Findings findings = good_findings();
    findings.gpu_survey = {};
    findings.gpu_survey.driver = GpuSurvey::Driver::too_old;
    findings.gpu_survey.driver_version = 10020;
    EXPECT_NE(advice_of(findings).find("update the NVIDIA driver to one of CUDA 11.4 or newer"),
              std::string::npos);
    findings.gpu_survey.driver = GpuSurvey::Driver::not_loadable;
    findings.gpu_survey.driver_error = "libcuda.so.1: file too short";
    EXPECT_NE(advice_of(findings).find("libcuda.so.1: file too short"), std::string::npos);
    EXPECT_EQ(advice_of(findings).find("no CUDA driver"), std::string::npos);
}

TEST(ToolsVerdict, a_refused_cma_is_a_matter_of_speed) {
    Findings findings = good_findings();
    findings.limits.cma_error = EPERM;
    EXPECT_TRUE(can_run(findings));
    EXPECT_NE(advice_of(findings).find("Operation not permitted"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("kernel.yama.ptrace_scope=0"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("seccomp"), std::string::npos);

    findings.limits.attach_error = EACCES;
    EXPECT_EQ(advice_of(findings).find("ptrace_scope"), std::string::npos) << "of the same cause";
}

TEST(ToolsVerdict, each_weakness_has_its_advice) {
    Findings findings = good_findings();
    findings.gpu_survey = {};
    findings.gpu_survey.driver = GpuSurvey::Driver::unusable;
    findings.gpu_survey.driver_error = "CUDA_ERROR_UNKNOWN";
    EXPECT_NE(advice_of(findings).find("CUDA_ERROR_UNKNOWN"), std::string::npos);

    findings = good_findings();
    findings.open_mpi =
        OpenMpiInstallation{"/usr/bin/mpirun",
                            Version{4, 1, 4},
                            false,
                            {{"/etc/a.conf", "^ucx", McaSource::system},
                             {"/etc/b-override.conf", "^ucx", McaSource::override_file}},
                            {},
                            {}};
    EXPECT_NE(advice_of(findings).find("built without UCX"), std::string::npos);
    EXPECT_NE(advice_of(findings).find("b-override.conf"), std::string::npos);
    EXPECT_EQ(advice_of(findings).find("a.conf forces"), std::string::npos)
        << "the environment wins over this file";
}

TEST(ToolsVerdict, settings_in_the_environment_that_keep_gpushm_out_are_named) {
    for (const char *setting : {"UCX_TLS=posix", "UCX_SHM_DEVICES=memory", "OMPI_MCA_pml=ob1"}) {
        const char *const entries[] = {setting, nullptr};
        const auto advice = judge(good_findings(), Environment(entries)).advice;
        ASSERT_EQ(advice.size(), 1u);
        EXPECT_NE(advice[0].find(std::string(setting) + " in the environment"), std::string::npos)
            << advice[0];
    }
    const char *const harmless[] = {"UCX_MODULES=cma", "OMPI_MCA_pml=ucx", nullptr};
    EXPECT_TRUE(judge(good_findings(), Environment(harmless)).advice.empty())
        << "UCX 1.16 loads no plugins";
}

TEST(ToolsVerdict, a_small_dev_shm_matters_only_to_who_asks_for_posix) {
    Findings findings = good_findings();
    findings.limits.shm_size_bytes = findings.limits.shm_free_bytes = 64 << 10;
    for (const char *harmless : {"A=b", "UCX_TLS=all", "UCX_TLS=gpushm,self", "UCX_TLS=^sm"}) {
        const char *const entries[] = {harmless, nullptr};
        EXPECT_EQ(judge(findings, Environment(entries)).advice.size(), 0u) << harmless;
    }
    for (const char *setting : {"UCX_TLS=posix,gpushm", "UCX_TLS=gpushm,sm,self"}) {
        const char *const entries[] = {setting, nullptr};
        const auto advice = judge(findings, Environment(entries)).advice;
        ASSERT_EQ(advice.size(), 1u) << setting;
        EXPECT_NE(advice[0].find("/dev/shm"), std::string::npos) << advice[0];
    }
    findings.limits.shm_free_bytes = 64 << 20;
    const char *const entries[] = {"UCX_TLS=posix,gpushm", nullptr};
    EXPECT_TRUE(judge(findings, Environment(entries)).advice.empty());
}

TEST(ToolsReport, the_text_shows_what_is_known_and_says_what_is_not) {
    Findings findings = good_findings();
    findings.gpu_survey.gpus[1].numa_node.reset();
    findings.gpu_survey.gpus[1].reaches[0] = false;
    const std::string text = text_report(findings, judge(findings, Environment(kNoEntries)));
    EXPECT_NE(text.find("UCX 1.16.0\n"), std::string::npos) << text;
    EXPECT_NE(text.find("CUDA 12.4"), std::string::npos) << text;
    EXPECT_NE(text.find("library           /usr/lib/libcuda.so.1\n"), std::string::npos) << text;
    EXPECT_NE(text.find("80.0 GiB"), std::string::npos) << text;
    EXPECT_NE(text.find("NUMA node 0"), std::string::npos) << text;
    EXPECT_NE(text.find("NUMA node unknown"), std::string::npos) << text;
    EXPECT_NE(text.find("GPU 1             n  -\n"), std::string::npos) << text;
    EXPECT_NE(text.find("Open MPI: no mpirun"), std::string::npos) << text;
    EXPECT_EQ(text.find('\033'), std::string::npos) << "no colours";
}

TEST(ToolsReport, the_json_has_null_for_what_is_absent) {
    const Findings findings = good_findings();
    const std::string json = json_report(findings, judge(findings, Environment(kNoEntries)));
    EXPECT_NE(json.find("\"can_run\": true"), std::string::npos) << json;
    EXPECT_NE(json.find("\"open_mpi\": null"), std::string::npos) << json;
    EXPECT_NE(json.find("\"name\": \"Model \\\"X\\\"\""), std::string::npos) << json;
    EXPECT_NE(json.find("\"memory_bytes\": 85899345920"), std::string::npos) << json;
    EXPECT_NE(json.find("\"version\": 12040"), std::string::npos) << json;
    EXPECT_NE(json.find("\"library\": \"/usr/lib/libcuda.so.1\""), std::string::npos) << json;
}

TEST(ToolsReport, the_json_of_a_machine_without_a_driver_has_no_version_of_it) {
    Findings findings = good_findings();
    findings.gpu_survey = {};
    const std::string json = json_report(findings, judge(findings, Environment(kNoEntries)));
    EXPECT_NE(json.find("\"version\": null"), std::string::npos) << json;
    EXPECT_EQ(json.find("\"version\": 0"), std::string::npos) << json;
}

TEST(ToolsJson, nesting_and_escapes) {
    JsonWriter json;
    json.begin_object();
    json.begin_array("empty");
    json.end_array();
    json.begin_array("list");
    json.number("", 1);
    json.text("", "a\n\"\\");
    json.end_array();
    json.null("none");
    json.end_object();
    EXPECT_EQ(json.result(),
              "{\n  \"empty\": [],\n  \"list\": [\n    1,\n    \"a\\u000a\\\"\\\\\"\n  ],\n"
              "  \"none\": null\n}");
}

TEST(ToolsNodeLimits, this_node_is_looked_at_without_leaving_children) {
    const NodeLimits limits = look_at_node();
    EXPECT_EQ(limits.pid_namespace.substr(0, 5), "pid:[");
    EXPECT_NE(limits.attach_error, ENOSYS) << "both children ran";
}

}  // namespace
}  // namespace gpushm::tools
