// SPDX-License-Identifier: BSD-3-Clause
// The history of allocations: what is gone is reported once, before anything trusts its address.
#include "core/allocation_history.hpp"

#include "core_gpu_support.hpp"

#include <memory>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

class AllocationHistoryTest : public GpuTest {
protected:
    /** As before a registration is looked for. */
    bool observe(const void *address) {
        gone_.clear();
        allocation_ = Allocation();
        return history_.observe(address, query_memory(address), &allocation_, &gone_);
    }

    AllocationHistory history_;
    Allocation allocation_;
    std::vector<Allocation> gone_;
};

TEST_F(AllocationHistoryTest, EveryByteLeadsToItsAllocation) {
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::managed}) {
        const Buffer buffer(kind, 100000);
        for (const size_t offset : {99999, 0, 50000}) {
            ASSERT_TRUE(observe(buffer.data() + offset));
            EXPECT_EQ(allocation_.base, buffer.data());
            EXPECT_EQ(allocation_.length, 100000u);
            EXPECT_EQ(allocation_.kind, kind);
            EXPECT_EQ(allocation_.buffer_id, query_memory(buffer.data()).buffer_id);
        }
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

TEST_F(AllocationHistoryTest, KnownAllocationCostsNoCall) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    const Buffer buffer(MemoryKind::device, 4096);
    const MemoryInfo info = query_memory(buffer.data());
    reset_calls();
    history_.observe(buffer.data(), info, &allocation_, &gone_);
    EXPECT_EQ(calls_of_all(), 1u);
    history_.observe(buffer.data() + 4095, info, &allocation_, &gone_);
    EXPECT_EQ(calls_of_all(), 1u);
}

TEST_F(AllocationHistoryTest, ReusedAddressReportsWhatWasThereOnce) {
    const void *address = nullptr;
    unsigned long long id = 0;
    {
        const Buffer first(MemoryKind::device, 8192);
        address = first.data();
        ASSERT_TRUE(observe(address));
        id = allocation_.buffer_id;
    }
    const Buffer second(MemoryKind::device, 4096);
    if (second.data() != address) {
        GTEST_SKIP() << "the driver chose another address";
    }
    ASSERT_TRUE(observe(second.data() + 100));
    EXPECT_EQ(allocation_.length, 4096u);
    ASSERT_EQ(gone_.size(), 1u);
    EXPECT_EQ(gone_[0].base, address);
    EXPECT_EQ(gone_[0].length, 8192u);
    EXPECT_EQ(gone_[0].buffer_id, id);
    ASSERT_TRUE(observe(second.data()));
    EXPECT_TRUE(gone_.empty());
}

TEST_F(AllocationHistoryTest, HostMemoryAtItsAddressMeansThatItIsGone) {
    const void *address = nullptr;
    {
        const Buffer buffer(MemoryKind::managed, 8192);
        address = buffer.data();
        ASSERT_TRUE(observe(address));
    }
    EXPECT_FALSE(history_.observe(static_cast<const unsigned char *>(address) + 8191, MemoryInfo(),
                                  &allocation_, &gone_));
    ASSERT_EQ(gone_.size(), 1u);
    EXPECT_EQ(gone_[0].base, address);
    EXPECT_EQ(gone_[0].kind, MemoryKind::managed);
    gone_.clear();
    EXPECT_FALSE(history_.observe(address, MemoryInfo(), &allocation_, &gone_));
    EXPECT_TRUE(gone_.empty());
}

TEST_F(AllocationHistoryTest, AnAllocationIsFreshOnce) {
    const Buffer buffer(MemoryKind::device, 4096);
    ASSERT_TRUE(observe(buffer.data()));
    EXPECT_TRUE(allocation_.fresh);
    ASSERT_TRUE(observe(buffer.data() + 100));
    EXPECT_FALSE(allocation_.fresh);
}

/** The driver says where an allocation begins and ends; what it does not know counts as a byte. */
TEST_F(AllocationHistoryTest, EverythingThatANewOneOverlapsIsGone) {
    const Buffer buffer(MemoryKind::device, 4096);
    for (const size_t offset : {size_t{0}, size_t{2000}, size_t{4095}, size_t{1} << 32}) {
        MemoryInfo old;
        old.kind = MemoryKind::device;
        old.buffer_id = ~offset;  // another buffer than the one that is there now
        history_.observe(buffer.data() + offset, old, &allocation_, &gone_);
    }
    // Each of the first three was taken for the whole buffer: the one before it was gone.
    ASSERT_EQ(gone_.size(), 2u);
    ASSERT_TRUE(observe(buffer.data() + 1));
    ASSERT_EQ(gone_.size(), 1u);
    EXPECT_EQ(gone_[0].buffer_id, ~size_t{4095});
}

TEST_F(AllocationHistoryTest, ReportsEverythingWhenItBeginsAnew) {
    const auto far_away = reinterpret_cast<const unsigned char *>(uint64_t{1} << 50);
    size_t reported = 0;
    constexpr size_t kCount = (1u << 14) + 100;
    for (size_t i = 0; i < kCount; ++i) {
        MemoryInfo info;
        info.kind = MemoryKind::device;
        info.buffer_id = i;
        gone_.clear();
        ASSERT_TRUE(history_.observe(far_away + 64 * i, info, &allocation_, &gone_));
        reported += gone_.size();
    }
    EXPECT_GE(reported, 1u << 14) << "an allocation was forgotten without a word";
    EXPECT_LT(reported, kCount);
}

TEST_F(AllocationHistoryTest, ThreadsObserveAtOnce) {
    const auto work = [&](unsigned long long first) {
        for (int i = 0; i < 500; ++i) {
            const Buffer buffer(MemoryKind::device, 4096);
            Allocation allocation;
            std::vector<Allocation> gone;
            ASSERT_TRUE(history_.observe(buffer.data(), query_memory(buffer.data()), &allocation,
                                         &gone))
                << first;
            ASSERT_EQ(allocation.base, buffer.data());
        }
    };
    const auto in_context = [&](unsigned long long first) {
        cuda_.ctx_push_current(context_);
        work(first);
        CUcontext popped;
        cuda_.ctx_pop_current(&popped);
    };
    std::thread other(in_context, 1);
    work(0);
    other.join();
}

}  // namespace
}  // namespace gpushm
