// SPDX-License-Identifier: BSD-3-Clause
// Runs a program and keeps what it wrote.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gpushm::ucp_test {

using Environment = std::map<std::string, std::string>;

struct CommandResult {
    int status;          // exit status; 128 + N after signal N
    std::string output;  // stdout and stderr
};

/** `arguments[0]` is searched in PATH when it has no slash. `environment` adds to ours. */
CommandResult run_command(const std::vector<std::string> &arguments,
                          const Environment &environment);

/** The folder of this program. */
std::string program_folder();

}  // namespace gpushm::ucp_test
