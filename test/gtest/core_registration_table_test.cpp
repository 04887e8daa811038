// SPDX-License-Identifier: BSD-3-Clause
// RegistrationTable: what a peer may touch, at the limits of 64-bit arithmetic.
#include "core/registration_table.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpushm {
namespace {

const void *pointer(uint64_t address) { return reinterpret_cast<const void *>(address); }

TEST(RegistrationTable, CoversExactlyTheRegisteredBytes) {
    RegistrationTable table;
    const uint64_t id = table.add(pointer(0x1000), 0x100);
    EXPECT_TRUE(table.covers(id, 0x1000, 0x100));
    EXPECT_TRUE(table.covers(id, 0x10ff, 1));
    EXPECT_TRUE(table.covers(id, 0x1100, 0)) << "an empty range at the end";
    EXPECT_FALSE(table.covers(id, 0x0fff, 1));
    EXPECT_FALSE(table.covers(id, 0x0fff, 0));
    EXPECT_FALSE(table.covers(id, 0x0fff, 0x101));
    EXPECT_FALSE(table.covers(id, 0x1000, 0x101));
    EXPECT_FALSE(table.covers(id, 0x10ff, 2));
    EXPECT_FALSE(table.covers(id, 0x1100, 1));
    EXPECT_FALSE(table.covers(id, 0x1101, 0));
}

TEST(RegistrationTable, LengthsAndAddressesNearTwoTo64DoNotWrap) {
    RegistrationTable table;
    const uint64_t low = table.add(pointer(0x1000), 0x100);
    EXPECT_FALSE(table.covers(low, 0x1000, UINT64_MAX));
    EXPECT_FALSE(table.covers(low, 0x1080, UINT64_MAX - 0x1080 + 1));
    EXPECT_FALSE(table.covers(low, 0x1080, UINT64_MAX - 0x7f));  // end wraps into the range
    EXPECT_FALSE(table.covers(low, UINT64_MAX, 0x1002));
    EXPECT_FALSE(table.covers(low, UINT64_MAX, 1));
    EXPECT_FALSE(table.covers(low, 0, UINT64_MAX));

    const uint64_t high = table.add(pointer(UINT64_MAX - 0xff), 0x100);  // the last 256 bytes
    EXPECT_TRUE(table.covers(high, UINT64_MAX - 0xff, 0x100));
    EXPECT_TRUE(table.covers(high, UINT64_MAX, 1));
    EXPECT_FALSE(table.covers(high, UINT64_MAX, 2));
    EXPECT_FALSE(table.covers(high, UINT64_MAX - 0xff, 0x101));
    EXPECT_FALSE(table.covers(high, 0, 0));
    EXPECT_FALSE(table.covers(high, 0, 1));
    EXPECT_FALSE(table.covers(high, UINT64_MAX - 0x100, 0x100));

    const uint64_t all = table.add(pointer(0), UINT64_MAX);
    EXPECT_TRUE(table.covers(all, 0, UINT64_MAX));
    EXPECT_TRUE(table.covers(all, UINT64_MAX - 1, 1));
    EXPECT_FALSE(table.covers(all, UINT64_MAX, 1));
}

TEST(RegistrationTable, IdsAreNeverZeroNeverReusedAndEndWithTheRegistration) {
    RegistrationTable table;
    EXPECT_FALSE(table.covers(0, 0x1000, 1));
    const uint64_t first = table.add(pointer(0x1000), 0x100);
    const uint64_t second = table.add(pointer(0x1000), 0x100);
    EXPECT_NE(first, 0u);
    EXPECT_NE(first, second);
    table.remove(first);
    EXPECT_FALSE(table.covers(first, 0x1000, 1));
    EXPECT_TRUE(table.covers(second, 0x1000, 1)) << "the same memory, registered twice";
    table.remove(first);
    const uint64_t third = table.add(pointer(0x2000), 0x100);
    EXPECT_GT(third, second);
    EXPECT_FALSE(table.covers(third, 0x1000, 1));
    EXPECT_FALSE(table.covers(third + 1, 0x2000, 1));
}

TEST(RegistrationTable, EmptyRegistrationCoversNoByte) {
    RegistrationTable table;
    const uint64_t id = table.add(pointer(0x1000), 0);
    EXPECT_TRUE(table.covers(id, 0x1000, 0));
    EXPECT_FALSE(table.covers(id, 0x1000, 1));
}

TEST(RegistrationTable, ServesManyThreads) {
    RegistrationTable table;
    std::vector<std::thread> threads;
    for (uint64_t t = 1; t <= 4; ++t) {
        threads.emplace_back([&table, t] {
            for (uint64_t i = 0; i < 2000; ++i) {
                const uint64_t base = t << 32 | i << 8;
                const uint64_t id = table.add(pointer(base), 256);
                ASSERT_TRUE(table.covers(id, base, 256));
                ASSERT_FALSE(table.covers(id, base, 257));
                table.remove(id);
                ASSERT_FALSE(table.covers(id, base, 1));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

}  // namespace
}  // namespace gpushm
