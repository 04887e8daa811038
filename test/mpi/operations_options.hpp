// SPDX-License-Identifier: BSD-3-Clause
// The command line of operations.
#pragma once

#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

struct Options {
    std::vector<std::string> only;   // parts of names; empty: all
    std::vector<std::string> kinds;  // empty: all that there are
    unsigned timeout_s = 120;
    bool quick = false;
    bool keep_going = false;
    bool verbose = false;
    bool list = false;
    bool help = false;
};

extern const char *const kUsage;

// Throws std::runtime_error with one line that says what is wrong.
Options parse_options(int argc, char **argv);

}  // namespace gpushm::mpi_test::operations
