// SPDX-License-Identifier: BSD-3-Clause
// What gpushm-run changes in a program's environment: rules only, no look at the system.
#pragma once

#include "tools/environment.hpp"
#include "tools/gpushm_files.hpp"
#include "tools/ucx_installation.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** What is known of the program to start. */
struct LaunchFacts {
    std::vector<std::string> command;  // may be empty: the environment for any program
    /** What libraries the program loads is known beforehand; not so for a script, an interpreter or
     * a launcher, which may bring a UCX of their own. */
    bool links_ucx = false;
    bool links_mpi = false;
    /** The one linked, otherwise the one that the dynamic loader finds by default. */
    std::optional<UcxInstallation> ucx;
    /** Why a preload library has no effect on this program itself; empty when it has. */
    std::string preload_obstacle;
    /** The MPI that the program links or starts, where that is known not to be Open MPI; else
     * empty. */
    std::string other_mpi;
    /** Whether a file or folder that a variable names can be loaded. */
    std::function<bool(const std::string &path)> is_there;
};

struct LaunchPlan {
    std::vector<Change> changes;
    std::vector<std::string> warnings;  // said in any case, one line each
    std::vector<std::string> notes;     // said by --verbose, one line each
};

/** Decides, and changes `environment` accordingly. */
LaunchPlan plan_launch(const LaunchFacts &facts, const GpushmFiles &files,
                       Environment &environment);

}  // namespace gpushm::tools
