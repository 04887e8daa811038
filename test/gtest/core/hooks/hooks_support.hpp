// SPDX-License-Identifier: BSD-3-Clause
// The driver's hooks, as the plugin installs them.
#pragma once

#include "core/memory/memory_query.hpp"

#include "test/gtest/core/gpu_support.hpp"

#include <vector>

namespace gpushm::test {

/** What the hooks have said to be freed, for tests of one thread. */
std::vector<MemoryInfo> &freed();

/** Once; false when that failed. */
bool install_all_hooks();

/** With all of them. */
class HookedTest : public GpuTest {
protected:
    void SetUp() override;
};

}  // namespace gpushm::test
