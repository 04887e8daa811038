// SPDX-License-Identifier: BSD-3-Clause
// What the processes of a test say of their standby kernels in UCX's debug log:
//   --standby-least=N  in each process they took at least N copies
//   --standby-most=N   and were launched at most so often
#pragma once

#include "scenarios.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpushm::ucp_test {

/** Makes the processes that are started now log into files of this object, if one of the options is
 * given. In the process that starts them. */
class StandbyLogs {
public:
    explicit StandbyLogs(const Options &options);
    StandbyLogs(const StandbyLogs &) = delete;
    StandbyLogs &operator=(const StandbyLogs &) = delete;
    void remove(const std::vector<pid_t> &processes) const;

private:
    std::string folder_;  // empty: nothing is to be logged
};

/** Runs the scenario in a started process, and fails the test if the numbers are not so when it has
 * ended and UCX is closed. How many copies a kernel gets depends on how often it runs: where
 * others use the processors, the scenario is run again until both processes have seen enough, for
 * some time. */
void run_with_standby_log(Peer &peer, void (*run)(Peer &peer));

}  // namespace gpushm::ucp_test
