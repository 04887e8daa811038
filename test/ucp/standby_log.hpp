// SPDX-License-Identifier: BSD-3-Clause
// What the processes of a test say of their standby kernels in UCX's debug log:
//   --standby-least=N  in each process they took at least N copies
//   --standby-most=N   and were launched at most so often
#pragma once

#include "options.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpushm::ucp_test {

/** Makes the processes that are started now log into files of this object, if one of the options is
 *  given. In the process that starts them. */
class StandbyLogs {
public:
    explicit StandbyLogs(const Options &options);
    StandbyLogs(const StandbyLogs &) = delete;
    StandbyLogs &operator=(const StandbyLogs &) = delete;
    void remove(const std::vector<pid_t> &processes) const;

private:
    std::string folder_;  // empty: nothing is to be logged
};

/** At the end of a started process, when UCX is closed. Fails the test if the numbers are not so. */
void check_standby_log(const Options &options);

}  // namespace gpushm::ucp_test
