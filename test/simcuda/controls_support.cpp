// SPDX-License-Identifier: BSD-3-Clause
// What the tests of the simulation's controls share.
#include "controls_support.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

namespace {

template <typename Function>
void look_up(const char *symbol, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(cu().handle, symbol));
}

Controls find_controls() {
    Controls found;
    look_up("simcuda_call_count", &found.call_count);
    look_up("simcuda_reset_counts", &found.reset_counts);
    look_up("simcuda_migrated_pages", &found.migrated_pages);
    look_up("simcuda_set", &found.set);
    return found;
}

}  // namespace

const Controls &controls() {
    static const Controls found = find_controls();
    return found;
}

void ControlsTest::SetUp() {
    if (!cu().simulated()) {
        GTEST_SKIP() << "the driver is not the simulated one";
    }
    DriverTest::SetUp();
}

void ControlsTest::TearDown() {
    if (cu().simulated()) {
        set("SIMCUDA_FAIL", "");
        set("SIMCUDA_DELAY_US", "5");
        set("SIMCUDA_BANDWIDTH_GBS", "25");
        set("SIMCUDA_KERNEL_START_US", "5");
        set("SIMCUDA_KERNEL_TIME_SCALE", "50");
        set("SIMCUDA_KERNEL_DIES", "");
        set("SIMCUDA_SEED", "0");
        set("SIMCUDA_PEER_ACCESS", "1");
        set("SIMCUDA_MAX_PINNED_BYTES", std::to_string(std::size_t{1} << 60));
        DriverTest::TearDown();
    }
}

void ControlsTest::set(const std::string &variable, const std::string &value) {
    EXPECT_EQ(0, controls().set(variable.c_str(), value.c_str())) << variable;
}

TemporaryFile::TemporaryFile() {
    close(mkstemp(name_));
}

TemporaryFile::~TemporaryFile() {
    unlink(name_);
}
