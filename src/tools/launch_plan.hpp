// SPDX-License-Identifier: BSD-3-Clause
// What gpushm-run changes in a program's environment: rules only, no look at the system.
#pragma once

#include "tools/environment.hpp"
#include "tools/gpushm_files.hpp"
#include "tools/ucx_installation.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** What is known of the program to start. */
struct LaunchFacts {
    std::vector<std::string> command;  // may be empty: the environment for any program
    /** What libraries the program loads is known beforehand; not so for a script, an interpreter or
     *  a launcher, which may bring a UCX of their own. */
    bool links_ucx = false;
    bool links_mpi = false;
    /** The one linked, otherwise the one that the dynamic loader finds by default. */
    std::optional<UcxInstallation> ucx;
    /** Why a preload library has no effect on this program itself; empty when it has. */
    std::string preload_obstacle;
};

struct LaunchPlan {
    std::vector<Change> changes;
    std::vector<std::string> warnings;  // said in any case, one line each
    std::vector<std::string> notes;     // said by --verbose, one line each
};

/** Decides, and changes `environment` accordingly. */
LaunchPlan plan_launch(const LaunchFacts &facts, const GpushmFiles &files,
                       Environment &environment);

/** One line for each setting of UCX in `environment` that keeps gpushm out. */
std::vector<std::string> excluding_settings(const Environment &environment);

/** The value of `--mca NAME VALUE` in the command line of Open MPI's mpirun; empty when the command
 *  is no mpirun or does not have it. The last one counts. */
std::optional<std::string> mca_argument(const std::vector<std::string> &command,
                                        const std::string &name);

/** Whether an MCA selection list ("ucx,ob1", or "^ucx" to exclude) allows `component`. */
bool mca_list_allows(const std::string &list, const std::string &component);

}  // namespace gpushm::tools
