// SPDX-License-Identifier: BSD-3-Clause
// The command line of pairs.
#pragma once

#include "cuda_driver.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace gpushm::mpi_test {

struct Options {
    std::vector<MemoryKind> kinds;  // empty: not given
    std::vector<int> devices;       // of rank 0 and 1; empty: rank modulo number of devices
    size_t max_size = size_t{64} << 20;
    unsigned timeout_s = 300;
    bool quick = false;
    bool tests = true;
    bool table = false;
    int repeat = 1;  // multiplies the iterations of the table
    bool only_driver = false;
    bool help = false;
};

extern const char *const kUsage;

// Throws std::runtime_error with one line that says what is wrong.
Options parse_options(int argc, char **argv);

}  // namespace gpushm::mpi_test
