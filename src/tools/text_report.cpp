// SPDX-License-Identifier: BSD-3-Clause
// gpushm-info's report for people.
#include "config.h"
#include "tools/report.hpp"

#include <cstdio>
#include <cstring>

namespace gpushm::tools {

namespace {

/** Headings, and below each its lines: a label and a value in two columns. */
class Page {
public:
    void heading(const std::string &text) { text_ += text + "\n"; }

    void line(const std::string &label, const std::string &value) {
        constexpr size_t kLabelWidth = 18;
        text_ += "  " + label;
        text_.append(label.size() < kLabelWidth ? kLabelWidth - label.size() : 1, ' ');
        text_ += value + "\n";
    }

    const std::string &text() const { return text_; }

private:
    std::string text_;
};

std::string format_bytes(uint64_t bytes) {
    const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

const char *yes_or_no(bool value) {
    return value ? "yes" : "no";
}

std::string works_or_why(int error) {
    return error == 0 ? "works" : std::string("refused: ") + strerror(error);
}

void add_ucx(Page &page, const std::string &heading, const UcxInstallation &ucx) {
    page.heading(heading + " " + to_string(ucx.version));
    page.line("library", ucx.libucp_path);
    page.line("layout", why_not_served(ucx).empty() ? "known" : "not served");
    page.line("loads gpushm by", loading_of(ucx.version) == Loading::plugin_path
                                     ? "UCX_PLUGIN_PATH (gpushm-run sets it)"
                                     : "LD_PRELOAD (gpushm-run sets it)");
    page.line("statistics", yes_or_no(ucx.statistics));
    page.line("CUDA of its own", yes_or_no(ucx.own_cuda));
}

void add_open_mpi(Page &page, const OpenMpiInstallation &open_mpi, bool plain_mpirun) {
    page.heading(open_mpi.version ? "Open MPI " + to_string(*open_mpi.version)
                                  : "MPI, not Open MPI");
    page.line("mpirun", open_mpi.mpirun);
    if (!open_mpi.version) {
        return;
    }
    if (open_mpi.has_pml_ucx) {
        page.line("pml/ucx", *open_mpi.has_pml_ucx ? "built in" : "missing");
    }
    if (open_mpi.ucx) {
        page.line("its UCX", to_string(open_mpi.ucx->version) + ", " + open_mpi.ucx->libucp_path);
    }
    for (const McaSetting &setting : open_mpi.pml_settings) {
        page.line("pml = " + setting.value,
                  setting.file + (setting.source == McaSource::override_file
                                      ? " (cannot be changed)"
                                      : " (gpushm-run overrides it)"));
    }
    page.line("component",
              open_mpi.enabled_in.empty() ? "not enabled (gpushm-openmpi)" : open_mpi.enabled_in);
    page.line("needs",
              plain_mpirun
                  ? "nothing more: plain mpirun uses gpushm"
                  : "OMPI_MCA_pml=ucx and four more (gpushm-run sets them, --print shows them)");
}

void add_peer_access(Page &page, const std::vector<Gpu> &gpus) {
    std::string header;
    for (size_t i = 0; i < gpus.size(); ++i) {
        header += "  " + std::to_string(i);
    }
    page.line("peer access", header);
    for (size_t i = 0; i < gpus.size(); ++i) {
        std::string row;
        for (size_t other = 0; other < gpus[i].reaches.size(); ++other) {
            row += std::string("  ") + (other == i ? "-" : gpus[i].reaches[other] ? "y" : "n");
            row.append(std::to_string(other).size() - 1, ' ');
        }
        page.line("  GPU " + std::to_string(i), row);
    }
}

void add_gpus(Page &page, const GpuSurvey &survey) {
    if (survey.driver == GpuSurvey::Driver::absent) {
        page.heading("CUDA driver: none, host memory only");
        return;
    }
    const std::string version = survey.driver_version
                                    ? " for CUDA " + std::to_string(*survey.driver_version / 1000) +
                                          "." + std::to_string(*survey.driver_version % 1000 / 10)
                                    : std::string();
    const bool usable = survey.driver == GpuSurvey::Driver::usable;
    page.heading("CUDA driver" + version + (usable ? "" : ": not usable, " + survey.driver_error));
    if (!survey.library.empty()) {
        page.line("library", survey.library);
    }
    if (!usable) {
        return;
    }
    for (size_t i = 0; i < survey.gpus.size(); ++i) {
        const Gpu &gpu = survey.gpus[i];
        page.line("GPU " + std::to_string(i), gpu.name + ", " + format_bytes(gpu.memory_bytes));
        page.line("", gpu.uuid);
        page.line("", "PCI " + gpu.pci_id + ", NUMA node " +
                          (gpu.numa_node ? std::to_string(*gpu.numa_node) : "unknown") +
                          ", compute mode " + compute_mode_name(gpu.compute_mode));
    }
    if (survey.gpus.empty()) {
        page.line("GPUs", "none");
    } else if (survey.gpus.size() > 1) {
        add_peer_access(page, survey.gpus);
    }
}

void add_node(Page &page, const NodeLimits &limits) {
    page.heading("This node");
    page.line("shared memory", works_or_why(limits.memory_file_error));
    page.line("attach to peers", works_or_why(limits.attach_error));
    page.line("copy by CMA",
              works_or_why(limits.cma_error) + " (large messages between hosts; UCX's cma)");
    page.line("/dev/shm",
              !limits.shm_size_bytes
                  ? std::string("absent; gpushm does not need it")
                  : format_bytes(*limits.shm_free_bytes) + " free of " +
                        format_bytes(*limits.shm_size_bytes) +
                        " (gpushm does not need it, and UCX does without its posix beside it)");
    page.line("locked memory",
              limits.locked_memory_bytes ? format_bytes(*limits.locked_memory_bytes) : "unlimited");
    page.line("open files", limits.open_files ? std::to_string(*limits.open_files) : "unlimited");
    page.line("PID namespace", limits.pid_namespace.empty() ? "unknown" : limits.pid_namespace);
}

}  // namespace

std::string text_report(const Findings &findings, const Verdict &verdict) {
    Page page;
    page.heading("gpushm " PACKAGE_VERSION);
    if (!findings.files.directory.empty()) {
        page.line("transport", findings.files.plugin());
        page.line("preload library", findings.files.preload());
    }
    page.line("serves", "UCX " + abi::served_versions());
    if (findings.ucx) {
        add_ucx(page, "UCX", *findings.ucx);
    } else {
        page.heading("UCX: none found");
    }
    if (open_mpi_has_other_ucx(findings)) {
        add_ucx(page, "Open MPI's UCX", *findings.open_mpi->ucx);
    }
    if (findings.open_mpi) {
        add_open_mpi(page, *findings.open_mpi, verdict.plain_mpirun);
    } else {
        page.heading("Open MPI: no mpirun in PATH");
    }
    add_gpus(page, findings.gpu_survey);
    add_node(page, findings.limits);
    page.heading("");
    page.heading(verdict.summary);
    for (const std::string &advice : verdict.advice) {
        page.heading("  * " + advice);
    }
    return page.text();
}

}  // namespace gpushm::tools
