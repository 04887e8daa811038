// SPDX-License-Identifier: BSD-3-Clause
// The history of allocations: what is gone is reported once, before anything trusts its address.
#include "core/memory/allocation_history.hpp"

#include "test/gtest/core/gpu_support.hpp"

#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

class AllocationHistoryTest : public GpuTest {
protected:
    /** As before a registration is looked for. */
    bool observe(const void *address) {
        gone_.clear();
        return history_.observe(address, query_memory(address), &gone_);
    }

    AllocationHistory history_;
    std::vector<MemoryInfo> gone_;
};

MemoryInfo device_memory(const void *base, size_t length, unsigned long long buffer_id) {
    MemoryInfo info;
    info.kind = MemoryKind::device;
    info.base = const_cast<void *>(base);
    info.length = length;
    info.buffer_id = buffer_id;
    return info;
}

TEST_F(AllocationHistoryTest, AnAllocationIsNewOnceWhicheverByteIsSeen) {
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::managed}) {
        const Buffer buffer(kind, 100000);
        EXPECT_TRUE(observe(buffer.data() + 99999));
        EXPECT_FALSE(observe(buffer.data()));
        EXPECT_FALSE(observe(buffer.data() + 50000));
        EXPECT_TRUE(gone_.empty());
    }
}

TEST_F(AllocationHistoryTest, HostMemoryIsNotKept) {
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned}) {
        const Buffer buffer(kind, 4096);
        EXPECT_FALSE(observe(buffer.data()));
        EXPECT_FALSE(observe(buffer.data()));
        EXPECT_TRUE(gone_.empty());
    }
}

TEST_F(AllocationHistoryTest, ReusedAddressReportsWhatWasThereOnce) {
    const void *address = nullptr;
    unsigned long long id = 0;
    {
        const Buffer first(MemoryKind::device, 8192);
        address = first.data();
        ASSERT_TRUE(observe(address));
        id = query_memory(address).buffer_id;
    }
    const Buffer second(MemoryKind::device, 4096);
    if (second.data() != address) {
        GTEST_SKIP() << "the driver chose another address";
    }
    ASSERT_TRUE(observe(second.data() + 100));
    ASSERT_EQ(gone_.size(), 1u);
    EXPECT_EQ(gone_[0].base, address);
    EXPECT_EQ(gone_[0].length, 8192u);
    EXPECT_EQ(gone_[0].buffer_id, id);
    ASSERT_FALSE(observe(second.data()));
    EXPECT_TRUE(gone_.empty());
}

TEST_F(AllocationHistoryTest, HostMemoryAtItsAddressMeansThatItIsGone) {
    const void *address = nullptr;
    {
        const Buffer buffer(MemoryKind::managed, 8192);
        address = buffer.data();
        ASSERT_TRUE(observe(address));
    }
    EXPECT_FALSE(
        history_.observe(static_cast<const unsigned char *>(address) + 8191, MemoryInfo(), &gone_));
    ASSERT_EQ(gone_.size(), 1u);
    EXPECT_EQ(gone_[0].base, address);
    EXPECT_EQ(gone_[0].kind, MemoryKind::managed);
    gone_.clear();
    EXPECT_FALSE(history_.observe(address, MemoryInfo(), &gone_));
    EXPECT_TRUE(gone_.empty());
}

TEST_F(AllocationHistoryTest, EverythingThatANewOneOverlapsIsGone) {
    const auto *place = reinterpret_cast<const unsigned char *>(uint64_t{1} << 50);
    const size_t begins[] = {0, 1000, 4000, 4096};
    for (unsigned long long id = 1; id <= 4; ++id) {
        const auto *base = place + begins[id - 1];
        ASSERT_TRUE(history_.observe(base, device_memory(base, id == 1 ? 600 : 500, id), &gone_));
        ASSERT_TRUE(id < 4 || gone_.size() == 1) << "4000..4499 overlaps 4096";
    }
    gone_.clear();
    ASSERT_TRUE(history_.observe(place + 700, device_memory(place + 599, 3498, 5), &gone_));
    ASSERT_EQ(gone_.size(), 3u) << "the third is gone already";
    EXPECT_EQ(gone_[0].buffer_id, 1u);
    EXPECT_EQ(gone_[1].buffer_id, 2u);
    EXPECT_EQ(gone_[2].buffer_id, 4u);
}

TEST_F(AllocationHistoryTest, ReportsEverythingWhenItBeginsAnew) {
    const auto far_away = reinterpret_cast<const unsigned char *>(uint64_t{1} << 50);
    size_t reported = 0;
    MemoryInfo last_reported;
    constexpr size_t kCount = (1u << 14) + 100;
    for (size_t i = 0; i < kCount; ++i) {
        const auto *base = far_away + 64 * i;
        gone_.clear();
        ASSERT_TRUE(history_.observe(base, device_memory(base, 64, i), &gone_));
        reported += gone_.size();
        last_reported = gone_.empty() ? last_reported : gone_.back();
    }
    EXPECT_GE(reported, 1u << 14) << "an allocation was forgotten without a word";
    EXPECT_LT(reported, kCount);
    EXPECT_TRUE(history_.observe(last_reported.base, last_reported, &gone_))
        << "what was reported is new again";
}

TEST_F(AllocationHistoryTest, ThreadsObserveAtOnce) {
    const auto work = [&] {
        for (int i = 0; i < 500; ++i) {
            const Buffer buffer(MemoryKind::device, 4096);
            const MemoryInfo info = query_memory(buffer.data());
            std::vector<MemoryInfo> gone;
            ASSERT_TRUE(history_.observe(buffer.data(), info, &gone));
            ASSERT_FALSE(history_.observe(buffer.data() + 4095, info, &gone));
        }
    };
    std::thread other([&] {
        cuda_.ctx_push_current(context_);
        work();
        CUcontext popped;
        cuda_.ctx_pop_current(&popped);
    });
    work();
    other.join();
}

}  // namespace
}  // namespace gpushm
