// SPDX-License-Identifier: BSD-3-Clause
// What the tests of the simulation's controls share.
#pragma once

#include "child_process.hpp"
#include "simcuda.h"
#include "test_support.hpp"

struct Controls {
    decltype(&simcuda_call_count) call_count;
    decltype(&simcuda_reset_counts) reset_counts;
    decltype(&simcuda_migrated_pages) migrated_pages;
    decltype(&simcuda_set) set;
};

// All null if the driver is not the simulated one.
const Controls &controls();

// Skipped if the driver is not the simulated one. Sets all variables back.
class ControlsTest : public DriverTest {
protected:
    void SetUp() override;
    void TearDown() override;

    static void set(const std::string &variable, const std::string &value);
};

// A file name that goes with the test.
class TemporaryFile {
public:
    TemporaryFile();
    ~TemporaryFile();
    TemporaryFile(const TemporaryFile &) = delete;

    const char *name() const { return name_; }

private:
    char name_[32] = "/tmp/simcuda_test.XXXXXX";
};
