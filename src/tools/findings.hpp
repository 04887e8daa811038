// SPDX-License-Identifier: BSD-3-Clause
// The findings of gpushm-info, and its verdict.
#pragma once

#include "tools/environment.hpp"
#include "tools/gpu_survey.hpp"
#include "tools/gpushm_files.hpp"
#include "tools/node_limits.hpp"
#include "tools/openmpi_installation.hpp"
#include "tools/ucx_installation.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

struct Findings {
    GpushmFiles files;
    std::optional<UcxInstallation> ucx;  // the UCX that the dynamic loader finds by default
    std::optional<OpenMpiInstallation> open_mpi;
    GpuSurvey gpu_survey;
    NodeLimits limits;
};

struct Verdict {
    bool can_run = false;
    bool plain_mpirun = false;        // the mpirun in PATH uses gpushm without gpushm-run
    std::string summary;              // one line: what gpushm will do here
    std::vector<std::string> advice;  // one line each: a problem and what to do
};

Verdict judge(const Findings &findings, const Environment &environment);

/** Whether Open MPI loads another UCX than `findings.ucx`. */
bool open_mpi_has_other_ucx(const Findings &findings);

/** nvidia-smi's name of a CUcomputemode. */
const char *compute_mode_name(int compute_mode);

}  // namespace gpushm::tools
