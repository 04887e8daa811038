// SPDX-License-Identifier: BSD-3-Clause
// main of the test programs: ends with 77, which Automake counts as skipped, without a driver.
#include "child_process.hpp"
#include "driver_api.hpp"

#include <cstdio>
#include <gtest/gtest.h>

int main(int argc, char **argv) {
    std::string reason;
    if (!load_driver(&reason)) {
        std::printf("skipped: cannot use libcuda.so.1: %s\n", reason.c_str());
        return 77;
    }
    int status = 0;
    if (run_as_child(argc, argv, &status)) {
        return status;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
