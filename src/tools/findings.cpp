// SPDX-License-Identifier: BSD-3-Clause
#include "tools/findings.hpp"

#include "openmpi/settings/settings.hpp"
#include "tools/user_settings.hpp"

#include <cuda.h>

#include <cerrno>
#include <cstring>

namespace gpushm::tools {

namespace {

using Advice = std::vector<std::string>;

const std::vector<std::string> kNoCommand;  // gpushm-info does not know mpirun's command line

/** Whether there is a UCX that gpushm serves. */
bool check_ucx(const Findings &findings, Advice &advice) {
    bool served = false;
    const auto check = [&](const UcxInstallation &ucx) {
        const std::string obstacle = why_not_served(ucx);
        served = served || obstacle.empty();
        if (!obstacle.empty()) {
            advice.push_back(obstacle);
        }
    };
    if (findings.ucx) {
        check(*findings.ucx);
    }
    if (open_mpi_has_other_ucx(findings)) {
        check(*findings.open_mpi->ucx);
    }
    if (!findings.ucx && !(findings.open_mpi && findings.open_mpi->ucx)) {
        advice.push_back(
            "no UCX (libucp.so.0) is found: install it (Debian and Ubuntu: package "
            "libucx0), or put its folder into LD_LIBRARY_PATH");
    }
    return served;
}

void check_open_mpi(const OpenMpiInstallation &open_mpi, Advice &advice) {
    if (!open_mpi.version) {
        advice.push_back(
            open_mpi.mpirun +
            " is not Open MPI's: other MPIs are not served, use Open MPI 4.1, 5.0 or 6.0");
        return;
    }
    if (open_mpi.has_pml_ucx && !*open_mpi.has_pml_ucx) {
        advice.push_back("Open MPI " + to_string(*open_mpi.version) + " (" + open_mpi.mpirun +
                         ") was built without UCX: use one whose ompi_info lists \"pml: ucx\"");
    }
    for (const McaSetting &setting : open_mpi.pml_settings) {
        if (setting.source == McaSource::override_file && !mca_list_allows(setting.value, "ucx")) {
            advice.push_back(setting.file + " forces pml = " + setting.value +
                             ", which gpushm-run cannot change: remove that line");
        }
    }
}

/** What to do about a driver that refuses to work. */
std::string advice_on_refusal(const GpuSurvey &survey) {
    const std::string refusal = survey.library + " cannot be used, " + survey.driver_error + ": ";
    switch (survey.driver_result) {
        case CUDA_ERROR_STUB_LIBRARY:
            return survey.library +
                   " is the CUDA toolkit's stub, which is for linking programs, and no driver: "
                   "take its folder out of LD_LIBRARY_PATH";
        case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
            return refusal +
                   "it and the NVIDIA module of the operating system are of two releases: reboot "
                   "the "
                   "machine, or start the container again, after an update of the driver";
        case CUDA_ERROR_SYSTEM_NOT_READY:
            return refusal + "start NVIDIA's service nvidia-fabricmanager";
        default:
            return refusal + "nvidia-smi may tell more; update or reinstall the NVIDIA driver";
    }
}

/** What is wrong with the driver, or that it sees no GPU. Empty: nothing. */
std::string driver_problem(const GpuSurvey &survey) {
    const std::string in_container = "in a container, start it with its GPUs (e.g. --gpus all)";
    switch (survey.driver) {
        case GpuSurvey::Driver::unusable:
            return advice_on_refusal(survey);
        case GpuSurvey::Driver::too_old:
            return survey.library +
                   " lacks functions that gpushm needs: update the NVIDIA driver to one of "
                   "CUDA 11.4 or newer";
        case GpuSurvey::Driver::not_loadable:
            return "the CUDA driver cannot be loaded (" + survey.driver_error +
                   "): remove the wrong folder from LD_LIBRARY_PATH, or reinstall the NVIDIA "
                   "driver";
        case GpuSurvey::Driver::absent:
            return (survey.has_nvidia_device
                        ? "there is an NVIDIA device, but no CUDA driver "
                          "(libcuda.so.1): install the NVIDIA driver; "
                        : "no CUDA driver (libcuda.so.1) and no NVIDIA device is visible: ") +
                   in_container;
        case GpuSurvey::Driver::usable:
            break;
    }
    return survey.gpus.empty()
               ? "the CUDA driver sees no GPU: look at CUDA_VISIBLE_DEVICES; " + in_container
               : "";
}

/** The GPUs in that mode, as nvidia-smi takes them: "0,2". Empty: none. */
std::string gpus_in_mode(const GpuSurvey &survey, int mode) {
    std::string list;
    for (size_t i = 0; i < survey.gpus.size(); ++i) {
        if (survey.gpus[i].compute_mode == mode) {
            list += (list.empty() ? "" : ",") + std::to_string(i);
        }
    }
    return list;
}

void check_compute_mode(const GpuSurvey &survey, int mode, const std::string &consequence,
                        Advice &advice) {
    const std::string list = gpus_in_mode(survey, mode);
    if (!list.empty()) {
        advice.push_back("GPU " + list + ": compute mode \"" + compute_mode_name(mode) + "\", " +
                         consequence + "nvidia-smi -i " + list + " -c DEFAULT");
    }
}

void check_peer_access(const std::vector<Gpu> &gpus, Advice &advice) {
    size_t pairs = 0;
    std::vector<std::string> apart;
    for (size_t i = 0; i < gpus.size(); ++i) {
        for (size_t other = i + 1; other < gpus[i].reaches.size(); ++other) {
            ++pairs;
            if (!gpus[i].reaches[other]) {
                apart.push_back("GPU " + std::to_string(i) + " and GPU " + std::to_string(other));
            }
        }
    }
    if (!apart.empty()) {
        const std::string which = apart.size() == 1 ? apart[0]
                                                    : std::to_string(apart.size()) + " of " +
                                                          std::to_string(pairs) + " pairs of GPUs";
        advice.push_back(which +
                         " have no peer access: data between them goes through host memory");
    }
}

void check_gpus(const GpuSurvey &survey, Advice &advice) {
    const std::string problem = driver_problem(survey);
    if (!problem.empty()) {
        advice.push_back(problem);
    }
    check_compute_mode(survey, CU_COMPUTEMODE_EXCLUSIVE_PROCESS,
                       "one process at a time can use it: fine with one rank for each GPU, else ",
                       advice);
    check_compute_mode(survey, CU_COMPUTEMODE_PROHIBITED, "no process can use it: ", advice);
    check_peer_access(survey.gpus, advice);
}

void check_cma(const NodeLimits &limits, Advice &advice) {
    if (limits.cma_error != 0) {
        advice.push_back(
            std::string("a process cannot read another one's memory (process_vm_readv: ") +
            strerror(limits.cma_error) +
            "), so large messages between host buffers go through shared memory, more slowly: "
            "sysctl kernel.yama.ptrace_scope=0, or a seccomp profile of the container that allows "
            "it");
    }
}

/** Whether processes can attach to each other's segments. */
bool check_sharing(const NodeLimits &limits, Advice &advice) {
    if (limits.memory_file_error != 0) {
        const int error = limits.memory_file_error;
        advice.push_back(std::string("no memory can be made to share (memfd_create: ") +
                         strerror(error) + "): " +
                         (error == EMFILE || error == ENFILE
                              ? "raise the limit of open files (ulimit -n)"
                              : "a filter on system calls (seccomp) of the container has to allow "
                                "memfd_create"));
        return false;
    }
    if (limits.attach_error == 0) {
        check_cma(limits, advice);
        return true;
    }
    advice.push_back(std::string("a process cannot open another one's /proc/PID/fd (") +
                     strerror(limits.attach_error) +
                     "), so peers cannot attach: run the ranks as one user, in one container, with "
                     "/proc mounted, without hidepid and without a filter on system calls");
    return false;
}

/** Checks /dev/shm if the user has selected posix (src/uct_gpushm/abi/posix_component.hpp). */
void check_shm(const NodeLimits &limits, const Environment &environment, Advice &advice) {
    constexpr uint64_t kBytesOfProcess =
        4292720;  // the receive memory of uct_mm_iface_t with default settings
    const auto transports = find_variable({environment, kNoCommand}, "UCX_TLS");
    if (!transports || !ucx_list_allows(transports->value, "gpushm") ||
        limits.shm_free_bytes.value_or(0) >= kBytesOfProcess) {
        return;
    }
    for (const std::string &name : split(transports->value, ", ")) {
        if (name == "posix" || name == "sm" || name == "shm" || name == "mm") {
            advice.push_back(transports->words() +
                             " has UCX use posix, which takes 4.2 MB of /dev/shm for each process "
                             "and fails here: take " +
                             name + " out of it");
        }
    }
}

void check_settings(const Findings &findings, const Environment &environment, Advice &advice) {
    const UserSettings user{environment, kNoCommand};
    const std::optional<UcxInstallation> &ucx =
        findings.ucx || !findings.open_mpi ? findings.ucx : findings.open_mpi->ucx;
    const bool ucx_has_cuda = ucx && ucx->own_cuda;
    for (const Exclusion &exclusion : excluding_ucx_settings(user, ucx_has_cuda)) {
        advice.push_back(exclusion.line);
    }
    const auto modules = excluding_modules(user);
    if (modules && ucx && loading_of(ucx->version) == Loading::plugin_path) {
        advice.push_back(modules->line);
    }
    if (const auto pml = excluding_pml(user, ucx_has_cuda)) {
        advice.push_back(pml->line);
    }
}

/** Whether plain mpirun uses gpushm: its component is enabled, and no setting prevents it. */
bool plain_mpirun_is_enough(const Findings &findings, const Environment &environment) {
    if (!findings.open_mpi || findings.open_mpi->enabled_in.empty() ||
        !findings.open_mpi->has_pml_ucx.value_or(true) ||
        openmpi::switches_off(environment.find("UCX_GPUSHM_OPENMPI")) ||
        excluding_pml({environment, kNoCommand}, false)) {
        return false;
    }
    for (const McaSetting &setting : findings.open_mpi->pml_settings) {
        if (setting.source != McaSource::system && !mca_list_allows(setting.value, "ucx")) {
            return false;
        }
    }
    return true;
}

std::string way_to_start(const Findings &findings, bool plain_mpirun) {
    return plain_mpirun
               ? "plain mpirun uses gpushm (gpushm-openmpi is enabled in " +
                     findings.open_mpi->enabled_in + "), start other programs by gpushm-run"
               : "start programs by gpushm-run";
}

std::string summarize(const Findings &findings, const Verdict &verdict) {
    if (!verdict.can_run) {
        return "gpushm cannot run here";
    }
    const size_t count = findings.gpu_survey.gpus.size();
    return count == 0 ? "gpushm can run, for host memory only: there is no usable GPU"
                      : "gpushm can run, for host memory and the memory of " +
                            std::to_string(count) + (count == 1 ? " GPU: " : " GPUs: ") +
                            way_to_start(findings, verdict.plain_mpirun);
}

}  // namespace

Verdict judge(const Findings &findings, const Environment &environment) {
    Verdict verdict;
    const bool installed = !findings.files.directory.empty();
    if (!installed) {
        verdict.advice.push_back(missing_files_message(findings.files));
    }
    const bool served = check_ucx(findings, verdict.advice);
    const bool sharing = check_sharing(findings.limits, verdict.advice);
    if (findings.open_mpi) {
        check_open_mpi(*findings.open_mpi, verdict.advice);
    }
    check_gpus(findings.gpu_survey, verdict.advice);
    check_shm(findings.limits, environment, verdict.advice);
    check_settings(findings, environment, verdict.advice);
    verdict.can_run = installed && served && sharing;
    verdict.plain_mpirun = plain_mpirun_is_enough(findings, environment);
    verdict.summary = summarize(findings, verdict);
    return verdict;
}

bool open_mpi_has_other_ucx(const Findings &findings) {
    return findings.open_mpi && findings.open_mpi->ucx &&
           (!findings.ucx || findings.ucx->libucp_path != findings.open_mpi->ucx->libucp_path);
}

const char *compute_mode_name(int compute_mode) {
    switch (compute_mode) {
        case CU_COMPUTEMODE_DEFAULT:
            return "default";
        case CU_COMPUTEMODE_PROHIBITED:
            return "prohibited";
        case CU_COMPUTEMODE_EXCLUSIVE_PROCESS:
            return "exclusive process";
        default:
            return "unknown";
    }
}

}  // namespace gpushm::tools
