// SPDX-License-Identifier: BSD-3-Clause
// RowViews: who reads a block gets what is in the rows, and only then is anything packed.
#include "core/copy/copy_any.hpp"
#include "core/copy/row_packing.hpp"
#include "core/copy/row_views.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kRow = 96;
constexpr size_t kCount = 100;
constexpr size_t kPitch = 160;

StridedRows rows_in(const Buffer &buffer) {
    return {reinterpret_cast<uint64_t>(buffer.data()), kRow, kCount, kPitch};
}

class RowViewsTest : public GpuTest {
protected:
    RowViewsTest() { elements_.fill(1); }
    ~RowViewsTest() override { RowViews::instance().remove(block_.data()); }

    std::vector<unsigned char> packed() const {
        const std::vector<unsigned char> all = read(elements_, kCount * kPitch);
        std::vector<unsigned char> bytes(kCount * kRow);
        for (size_t row = 0; row < kCount; ++row) {
            memcpy(&bytes[row * kRow], &all[row * kPitch], kRow);
        }
        return bytes;
    }
    std::vector<unsigned char> contents(size_t begin, size_t length) const {
        std::vector<unsigned char> bytes(length);
        EXPECT_EQ(copy_any(bytes.data(), block_.data() + begin, length), Status::ok);
        return bytes;
    }

    bool is_unpacked() const {
        const void *block = nullptr;
        return RowViews::instance().name_source(block_.data(), kCount * kRow, &block).has_value();
    }

    RowViews &views_ = RowViews::instance();
    Buffer elements_{MemoryKind::device, kCount *kPitch};
    Buffer block_{MemoryKind::device, kCount *kRow};
};

TEST_F(RowViewsTest, WhoReadsABlockGetsTheRows) {
    block_.fill(2);
    add_row_source(block_.data(), rows_in(elements_));
    EXPECT_EQ(block_.check(0, kCount * kRow, 2, 0), "") << "packed before anybody asked";
    EXPECT_EQ(contents(0, kCount * kRow), packed());
}

TEST_F(RowViewsTest, WhoReadsAPartGetsIt) {
    block_.fill(2);
    add_row_source(block_.data(), rows_in(elements_));
    const std::vector<unsigned char> all = packed();
    EXPECT_EQ(contents(1000, 77), std::vector<unsigned char>(&all[1000], &all[1077]));
    EXPECT_FALSE(is_unpacked()) << "it is packed now";
}

constexpr size_t kFew = 10;  // rows whose block is short

StridedRows few_rows_in(const Buffer &buffer) {
    return {reinterpret_cast<uint64_t>(buffer.data()), kRow, kFew, kPitch};
}

TEST_F(RowViewsTest, WhoReadsAWholeShortBlockReadsTheRows) {
    const std::vector<unsigned char> all = packed();
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned, MemoryKind::device}) {
        block_.fill(2);
        Buffer target(kind, kFew * kRow);
        target.fill(3);
        add_row_source(block_.data(), few_rows_in(elements_));
        ASSERT_EQ(copy_any(target.data(), block_.data(), kFew * kRow), Status::ok);
        EXPECT_EQ(read(target, kFew * kRow),
                  std::vector<unsigned char>(&all[0], &all[kFew * kRow]));
        EXPECT_EQ(block_.check(0, kCount * kRow, 2, 0), "") << "filled although nobody needs it";
        views_.remove(block_.data());
    }
}

TEST_F(RowViewsTest, WhoWritesAWholeShortBlockFillsTheRows) {
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned, MemoryKind::device}) {
        Buffer source(kind, kFew * kRow);
        source.fill(4);
        elements_.fill(5);
        std::vector<unsigned char> expected = read(elements_, kCount * kPitch);
        const std::vector<unsigned char> sent = read(source, kFew * kRow);
        views_.add_destination(block_.data(), few_rows_in(elements_));
        ASSERT_EQ(copy_any(block_.data(), source.data(), kFew * kRow), Status::ok);
        EXPECT_TRUE(views_.is_filled(block_.data()));
        for (size_t row = 0; row < kFew; ++row) {
            memcpy(&expected[row * kPitch], &sent[row * kRow], kRow);
        }
        EXPECT_EQ(read(elements_, kCount * kPitch), expected);
        views_.remove(block_.data());
    }
}

TEST_F(RowViewsTest, AShorterMessageStaysInTheBlock) {
    Buffer source(MemoryKind::pinned, kFew * kRow);
    source.fill(4);
    elements_.fill(5);
    views_.add_destination(block_.data(), few_rows_in(elements_));
    ASSERT_EQ(copy_any(block_.data(), source.data(), kFew * kRow - 1), Status::ok);
    EXPECT_FALSE(views_.is_filled(block_.data()));
    EXPECT_EQ(elements_.check(0, kCount * kPitch, 5, 0), "");
    EXPECT_EQ(read(block_, kFew * kRow - 1), read(source, kFew * kRow - 1));
}

TEST_F(RowViewsTest, APackedBlockIsNotPackedAgain) {
    add_row_source(block_.data(), rows_in(elements_));
    EXPECT_TRUE(views_.pack(block_.data(), 1));
    block_.fill(3);
    EXPECT_TRUE(views_.pack(block_.data(), kCount * kRow));
    EXPECT_EQ(block_.check(0, kCount * kRow, 3, 0), "");
}

TEST_F(RowViewsTest, AnEndedViewIsAPlainBlock) {
    block_.fill(2);
    add_row_source(block_.data(), rows_in(elements_));
    views_.remove(block_.data());
    EXPECT_TRUE(views_.pack(block_.data(), kCount * kRow));
    EXPECT_EQ(block_.check(0, kCount * kRow, 2, 0), "");
}

TEST_F(RowViewsTest, ThreadsThatReadAtOnceSeeAllOfIt) {
    for (int round = 0; round < 20; ++round) {
        block_.fill(2);
        add_row_source(block_.data(), rows_in(elements_));
        const std::vector<unsigned char> expected = packed();
        std::vector<unsigned char> read_by[3];
        std::vector<std::thread> threads;
        for (std::vector<unsigned char> &bytes : read_by) {
            threads.emplace_back([&] { bytes = contents(0, kCount * kRow); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        for (const std::vector<unsigned char> &bytes : read_by) {
            ASSERT_EQ(bytes, expected);
        }
        views_.remove(block_.data());
    }
}

TEST_F(RowViewsTest, AKeyNamesTheOnlyOne) {
    Buffer second(MemoryKind::device, kCount * kRow);
    const unsigned char *begin = std::min(block_.data(), second.data());
    const size_t length =
        static_cast<size_t>(std::max(block_.data(), second.data()) - begin) + kCount * kRow;
    const void *named = nullptr;
    EXPECT_FALSE(views_.name_source(begin, length, &named));
    add_row_source(block_.data(), rows_in(elements_));
    const std::optional<StridedRows> rows = views_.name_source(begin, length, &named);
    ASSERT_TRUE(rows);
    EXPECT_EQ(named, block_.data());
    EXPECT_EQ(rows->address, reinterpret_cast<uint64_t>(elements_.data()));
    EXPECT_EQ(rows->bytes(), kCount * kRow);
    // Of two, a key has no room to tell: it is about plain memory then.
    add_row_source(second.data(), rows_in(elements_));
    second.fill(4);
    EXPECT_FALSE(views_.name_source(begin, length, &named));
    EXPECT_FALSE(is_unpacked());
    EXPECT_EQ(read(second, kCount * kRow), packed());
    views_.remove(second.data());
}

TEST_F(RowViewsTest, ADestinationIsForTheWholeBlock) {
    views_.add_destination(block_.data(), rows_in(elements_));
    EXPECT_TRUE(views_.destination(block_.data(), kCount * kRow));
    EXPECT_FALSE(views_.destination(block_.data(), kCount * kRow - 1));
    EXPECT_FALSE(views_.destination(block_.data() + 1, kCount * kRow));
    EXPECT_FALSE(is_unpacked());
    EXPECT_FALSE(views_.is_filled(block_.data()));
    views_.set_filled(block_.data());
    EXPECT_TRUE(views_.is_filled(block_.data()));
    views_.remove(block_.data());
    EXPECT_FALSE(views_.is_filled(block_.data()));
}

/** The next calls of these fail: each rule ends one call, and counts those only that no other has
 * ended. */
void fail_calls(std::initializer_list<const char *> functions) {
    std::string rules;
    for (const char *function : functions) {
        for (int call = 1; call < 500; ++call) {
            rules += std::string(rules.empty() ? "" : ",") + function + ":1:700";
        }
    }
    set_simulation("SIMCUDA_FAIL", rules.c_str());
}

TEST_F(RowViewsTest, AFailingGpuIsNoData) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    block_.fill(2);
    add_row_source(block_.data(), rows_in(elements_));
    fail_calls(
        {"cuMemcpy2DAsync", "cuMemcpyAsync", "cuMemcpyBatchAsync", "cuLaunchKernel", "cuMemcpy"});
    unsigned char byte = 0;
    EXPECT_EQ(copy_any(&byte, block_.data(), 1), Status::gpu_error);
    // The last resort is enough, for both steps.
    fail_calls({"cuMemcpy2DAsync", "cuMemcpyAsync", "cuMemcpyBatchAsync", "cuLaunchKernel"});
    const std::vector<unsigned char> bytes = contents(0, kCount * kRow);
    set_simulation("SIMCUDA_FAIL", "");
    EXPECT_EQ(bytes, packed());
}

TEST(StridedRowsTest, NumbersThatMakeNoSenseAreNoBytes) {
    EXPECT_EQ((StridedRows{0x1000, 8, 4, 8}).bytes(), 32u);
    EXPECT_EQ((StridedRows{0x1000, 8, 4, 16}).extent(), 56u);
    EXPECT_EQ((StridedRows{0x1000, 0, 4, 16}).bytes(), 0u);
    EXPECT_EQ((StridedRows{0x1000, 8, 0, 16}).bytes(), 0u);
    EXPECT_EQ((StridedRows{0x1000, 8, 4, 7}).bytes(), 0u);
    EXPECT_EQ(
        (StridedRows{0x1000, uint64_t{1} << 40, uint64_t{1} << 40, uint64_t{1} << 40}).bytes(), 0u);
    EXPECT_EQ((StridedRows{0x1000, 8, uint64_t{1} << 60, 32}).bytes(), 0u);
    EXPECT_EQ((StridedRows{UINT64_MAX - 10, 8, 4, 8}).bytes(), 0u);
}

TEST_F(RowViewsTest, WhatNobodyWasToldOfMayChangeBehindAFill) {
    add_row_source(block_.data(), rows_in(elements_));
    const std::vector<unsigned char> expected = packed();
    EXPECT_TRUE(views_.fill_untold(block_.data()));
    elements_.fill(3);
    EXPECT_EQ(contents(0, expected.size()), expected);
    EXPECT_FALSE(views_.source(block_.data(), expected.size()).has_value());
    EXPECT_FALSE(is_unpacked());
}

TEST_F(RowViewsTest, WhatSomebodyWasToldOfMustStay) {
    add_row_source(block_.data(), rows_in(elements_));
    EXPECT_TRUE(is_unpacked());  // told
    EXPECT_FALSE(views_.fill_untold(block_.data()));
    views_.remove(block_.data());
    add_row_source(block_.data(), rows_in(elements_));
    auto reading = views_.source(block_.data(), kCount * kRow);
    EXPECT_TRUE(reading.has_value());
    EXPECT_FALSE(views_.fill_untold(block_.data()));
    EXPECT_FALSE(views_.move_source(block_.data(), elements_.data()));
    reading.reset();
    EXPECT_TRUE(views_.move_source(block_.data(), elements_.data()));
    EXPECT_FALSE(views_.fill_untold(elements_.data()));  // no source
}

// An asynchronous copy of a block reads the rows until it has ended.
TEST_F(RowViewsTest, ACopyUnderWayReadsTheRows) {
    constexpr size_t kShort = 40;  // rows; longer blocks are filled
    Buffer target(MemoryKind::pinned, kShort * kRow);
    StridedRows rows = rows_in(elements_);
    rows.count = kShort;
    add_row_source(block_.data(), rows);
    CopyEngine engine;
    CopyTicket ticket;
    const MemoryInfo info = query_memory(block_.data());
    const Status status = engine.start(
        {target.data(), block_.data(), rows.bytes(), info, CopyDirection::from_gpu}, &ticket);
    if (status == Status::in_progress) {
        EXPECT_FALSE(views_.move_source(block_.data(), target.data()));
        EXPECT_EQ(engine.wait(&ticket), Status::ok);
    }
    EXPECT_TRUE(views_.move_source(block_.data(), target.data()));
}

TEST_F(RowViewsTest, AMovedSourceIsReadWhereItIs) {
    Buffer elsewhere(MemoryKind::pinned, kCount * kRow);
    elsewhere.fill(4);
    add_row_source(block_.data(), rows_in(elements_));
    EXPECT_TRUE(is_unpacked());
    EXPECT_TRUE(views_.move_source(block_.data(), elsewhere.data()));
    EXPECT_FALSE(views_.source(block_.data(), kCount * kRow).has_value());
    EXPECT_EQ(contents(0, kCount * kRow), read(elsewhere, kCount * kRow));
    EXPECT_FALSE(is_unpacked());
}

}  // namespace
}  // namespace gpushm
