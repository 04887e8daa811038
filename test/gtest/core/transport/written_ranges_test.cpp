// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/written_ranges.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace gpushm {
namespace {

constexpr uint64_t kAll = UINT64_MAX;

TEST(WrittenRangesTest, OverlapIsToShareAByte) {
    WrittenRanges ranges;
    EXPECT_FALSE(ranges.overlaps(0, kAll));
    const WrittenRanges::Hold held = ranges.hold(1000, 24);
    EXPECT_TRUE(ranges.overlaps(1000, 1));
    EXPECT_TRUE(ranges.overlaps(1023, 1));
    EXPECT_TRUE(ranges.overlaps(999, 2));
    EXPECT_TRUE(ranges.overlaps(0, kAll));
    EXPECT_FALSE(ranges.overlaps(999, 1));
    EXPECT_FALSE(ranges.overlaps(1024, 1000));
}

TEST(WrittenRangesTest, EachOneOfTheSameBytesCounts) {
    WrittenRanges ranges;
    WrittenRanges::Hold first = ranges.hold(4096, 8);
    WrittenRanges::Hold second = ranges.hold(4096, 8);
    first = WrittenRanges::Hold();
    EXPECT_TRUE(ranges.overlaps(4100, 1));
    second = WrittenRanges::Hold();
    EXPECT_FALSE(ranges.overlaps(4100, 1));
}

TEST(WrittenRangesTest, TheEndOfTheAddressesIsNoBeginning) {
    WrittenRanges ranges;
    const WrittenRanges::Hold held = ranges.hold(kAll - 10, 100);
    EXPECT_TRUE(ranges.overlaps(kAll - 1, 1));
    EXPECT_FALSE(ranges.overlaps(0, 100));
    const WrittenRanges::Hold everything = ranges.hold(0, kAll);
    EXPECT_TRUE(ranges.overlaps(5, 1));
}

TEST(WrittenRangesTest, AgreesWithALookAtEachRange) {
    struct Bytes {
        uint64_t begin;
        uint64_t length;
    };
    std::mt19937 random(7);
    const auto make = [&] {
        return Bytes{random() % 5000, 1 + random() % (uint64_t{1} << (random() % 11))};
    };
    WrittenRanges ranges;
    std::vector<Bytes> expected;
    std::vector<WrittenRanges::Hold> held;
    unsigned overlapping = 0;
    for (int i = 0; i < 20000; ++i) {
        const Bytes asked = make();
        bool overlaps = false;
        for (const Bytes &bytes : expected) {
            overlaps |= bytes.begin < asked.begin + asked.length &&
                        asked.begin < bytes.begin + bytes.length;
        }
        ASSERT_EQ(ranges.overlaps(asked.begin, asked.length), overlaps)
            << asked.begin << " " << asked.length;
        overlapping += overlaps;
        if (expected.size() < 12) {
            expected.push_back(make());
            held.push_back(ranges.hold(expected.back().begin, expected.back().length));
        } else {
            const size_t gone = random() % expected.size();
            expected.erase(expected.begin() + static_cast<ptrdiff_t>(gone));
            held.erase(held.begin() + static_cast<ptrdiff_t>(gone));
        }
    }
    EXPECT_GT(overlapping, 2000u);
    EXPECT_LT(overlapping, 18000u);
}

/** A search that looks at all of them takes minutes here. */
TEST(WrittenRangesTest, AreManyBesideALongOne) {
    constexpr uint64_t kShort = 400'000;
    WrittenRanges ranges;
    std::vector<WrittenRanges::Hold> held;
    held.push_back(ranges.hold(uint64_t{1} << 40, uint64_t{1} << 30));
    for (uint64_t i = 0; i < kShort; ++i) {
        ASSERT_FALSE(ranges.overlaps(i * 32, 16));
        held.push_back(ranges.hold(i * 32, 16));
    }
    EXPECT_TRUE(ranges.overlaps((kShort - 1) * 32 + 15, 1));
    EXPECT_TRUE(ranges.overlaps((uint64_t{1} << 40) + 12345, 1));
}

}  // namespace
}  // namespace gpushm
