// SPDX-License-Identifier: BSD-3-Clause
// RegistrationTable: what a peer may touch, at the limits of 64-bit arithmetic.
#include "core/memory/registration_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

const void *pointer(uint64_t address) {
    return reinterpret_cast<const void *>(address);
}

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

TEST(RegistrationTable, PeersSeeWhatLives) {
    RegistrationTable table;
    const auto list = std::make_unique<RegistrationList>();
    const uint64_t before = table.add(pointer(0x1000), 0x100);
    EXPECT_FALSE(list->contains(before));
    table.publish(list.get());
    const uint64_t after = table.add(pointer(0x2000), 0x100);
    EXPECT_TRUE(list->contains(before));
    EXPECT_TRUE(list->contains(after));
    EXPECT_FALSE(list->contains(after + RegistrationList::kPlaces)) << "of the same place";
    table.remove(after);
    EXPECT_FALSE(list->contains(after));
    EXPECT_TRUE(list->contains(before)) << "another one";
    table.cancel(list.get());
    EXPECT_FALSE(list->contains(before));
    const uint64_t unseen = table.add(pointer(0x3000), 0x100);
    EXPECT_FALSE(list->contains(unseen));
}

/** A program that registers and deregisters memory for each message. */
TEST(RegistrationTable, WhatComesAndGoesLeavesTheOthersListed) {
    RegistrationTable table;
    const auto list = std::make_unique<RegistrationList>();
    table.publish(list.get());
    const uint64_t stays = table.add(pointer(0x1000), 0x100);
    for (size_t i = 0; i < 3 * RegistrationList::kPlaces; ++i) {
        const uint64_t id = table.add(pointer(0x2000), 0x100);
        ASSERT_TRUE(list->contains(id));
        table.remove(id);
        ASSERT_FALSE(list->contains(id));
    }
    EXPECT_TRUE(list->contains(stays));
    table.cancel(list.get());
}

TEST(RegistrationTable, OfTooManyTheNewestAreListed) {
    RegistrationTable table;
    const auto list = std::make_unique<RegistrationList>();
    table.publish(list.get());
    std::vector<uint64_t> ids;
    for (size_t i = 0; i < RegistrationList::kPlaces + 100; ++i) {
        ids.push_back(table.add(pointer(0x1000), 0x100));
    }
    const auto listed = [&] {
        return std::count_if(ids.begin(), ids.end(),
                             [&](uint64_t id) { return list->contains(id); });
    };
    EXPECT_EQ(listed(), static_cast<ptrdiff_t>(RegistrationList::kPlaces));
    EXPECT_TRUE(list->contains(ids.back()));
    EXPECT_FALSE(list->contains(ids.front()));
    EXPECT_TRUE(table.covers(ids.front(), 0x1000, 0x100)) << "which is served when asked for";
    table.remove(ids.front());
    EXPECT_TRUE(list->contains(ids[RegistrationList::kPlaces])) << "whose place it once was";
    for (const uint64_t id : ids) {
        table.remove(id);
        ASSERT_FALSE(list->contains(id));
    }
    EXPECT_EQ(listed(), 0);
    table.cancel(list.get());
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
