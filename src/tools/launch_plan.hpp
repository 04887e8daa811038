// SPDX-License-Identifier: BSD-3-Clause
// Decides what gpushm-run changes in a program's environment. Does not examine the system itself.
#pragma once

#include "tools/environment.hpp"
#include "tools/gpushm_files.hpp"
#include "tools/ucx_installation.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** Facts about the program to start. */
struct LaunchFacts {
    std::vector<std::string> command;  // may be empty: the environment for any program
    /** Whether the program is linked to UCX. Scripts, interpreters and launchers are not, and may
     * load any UCX. */
    bool links_ucx = false;
    bool links_mpi = false;
    /** The UCX that the program is linked to, otherwise the one that the dynamic loader finds. */
    std::optional<UcxInstallation> ucx;
    /** Why a preload library has no effect on the program itself. Empty: it has. */
    std::string preload_obstacle;
    /** The MPI that the program is linked to or starts, if it is not Open MPI. Otherwise empty. */
    std::string other_mpi;
    /** Whether a file or folder that a variable names can be loaded. */
    std::function<bool(const std::string &path)> is_there;
};

struct LaunchPlan {
    std::vector<Change> changes;
    std::vector<std::string> warnings;  // always printed, one line each
    std::vector<std::string> notes;     // printed with --verbose, one line each
};

/** Makes the plan and changes `environment` accordingly. */
LaunchPlan plan_launch(const LaunchFacts &facts, const GpushmFiles &files,
                       Environment &environment);

}  // namespace gpushm::tools
