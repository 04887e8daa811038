// SPDX-License-Identifier: BSD-3-Clause
// HostRegistrationCache: the application's memory is page-locked when that pays, never longer than
// it exists, and never more than is allowed.
#include "core/pinning/host_registration_cache.hpp"
#include "core/standby/standby_demand.hpp"
#include "core/standby/standby_registry.hpp"

#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/shm/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kPage = 4096;
constexpr size_t kMegabyte = 1 << 20;
constexpr size_t kUnlimited = size_t{1} << 40;
constexpr double kLong = 1;      // seconds: more than any page-locking costs
constexpr double kShort = 1e-6;  // less

class HostRegistrationCacheTest : public GpuTest {
protected:
    HostRegistrationCacheTest() {
        pins_.enable(kUnlimited);
        if (simulated()) {
            reset_calls();
        }
    }
    ~HostRegistrationCacheTest() override {
        pins_.invalidate(memory_, kBytes);
        forget_counts();
        pins_.enable(0);
    }
    void SetUp() override {
        if (!simulated()) {
            GTEST_SKIP() << "counts calls";
        }
    }

    /** What is not locked is remembered, also beyond its end, until so many others came. */
    void forget_counts() {
        static Buffer others(MemoryKind::host, 600 * kPage);
        for (size_t page = 0; page < 600; page += 2) {
            pins_.acquire(MemoryInfo(), others.data() + page * kPage, 1, context_, 0);
        }
    }
    HostRegistrationCache::Hold acquire(size_t offset, size_t length, double seconds = kLong) {
        return pins_.acquire(query_memory(memory_ + offset), memory_ + offset, length, context_,
                             seconds);
    }
    /** Without asking the driver. */
    HostRegistrationCache::Hold acquire_again(size_t offset, size_t length) {
        return pins_.acquire(MemoryInfo(), memory_ + offset, length, context_, kLong);
    }
    /** Page-locks a range by using it. */
    HostRegistrationCache::Hold lock(size_t offset, size_t length) {
        acquire(offset, length);
        return acquire(offset, length);
    }
    bool locked(size_t offset) const {
        return query_memory(memory_ + offset).kind == MemoryKind::pinned;
    }

    static constexpr size_t kBytes = 16 * kMegabyte;
    HostRegistrationCache &pins_ = HostRegistrationCache::instance();
    Buffer buffer_{MemoryKind::host, kBytes};
    unsigned char *const memory_ = buffer_.data();
};

TEST_F(HostRegistrationCacheTest, NothingIsLockedBeforeItIsAllowed) {
    pins_.enable(0);
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(acquire(0, kMegabyte), nullptr);
    }
    EXPECT_EQ(calls("cuMemHostRegister"), 0u);
}

TEST_F(HostRegistrationCacheTest, OnceIsNotEnough) {
    EXPECT_EQ(acquire(0, kMegabyte), nullptr) << "it may never come again";
    EXPECT_FALSE(locked(0));
    EXPECT_NE(acquire(0, kMegabyte), nullptr);
    EXPECT_TRUE(locked(0) && locked(kMegabyte - 1));
    EXPECT_FALSE(locked(kMegabyte));
    for (int i = 0; i < 5; ++i) {
        EXPECT_NE(acquire(0, kMegabyte), nullptr);
        EXPECT_NE(acquire(kMegabyte / 2, 100), nullptr) << "a part of it";
    }
    EXPECT_EQ(calls("cuMemHostRegister"), 1u);
    EXPECT_EQ(calls("cuMemHostUnregister"), 0u);
}

TEST_F(HostRegistrationCacheTest, ItMustPay) {
    // 1 MB costs 0.46 ms.
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(acquire(0, kMegabyte, 0.1e-3), nullptr) << i;
    }
    EXPECT_NE(acquire(0, kMegabyte, 0.1e-3), nullptr);
    // 8 MB cost 1.56 ms.
    for (int i = 0; i < 15; ++i) {
        EXPECT_EQ(acquire(2 * kMegabyte, 8 * kMegabyte, 0.1e-3), nullptr) << i;
    }
    EXPECT_NE(acquire(2 * kMegabyte, 8 * kMegabyte, 0.1e-3), nullptr);
}

TEST_F(HostRegistrationCacheTest, WholePagesAreLocked) {
    lock(kPage + 10, 100);
    EXPECT_TRUE(locked(kPage) && locked(2 * kPage - 1));
    EXPECT_FALSE(locked(kPage - 1) || locked(2 * kPage));
    lock(10 * kPage - 1, 2);
    EXPECT_TRUE(locked(9 * kPage) && locked(11 * kPage - 1));
}

TEST_F(HostRegistrationCacheTest, OverlappingRangesBecomeOne) {
    lock(0, 2 * kMegabyte);
    EXPECT_NE(acquire(kMegabyte, 2 * kMegabyte), nullptr) << "both were wanted";
    EXPECT_TRUE(locked(0) && locked(3 * kMegabyte - 1));
    EXPECT_FALSE(locked(3 * kMegabyte));
    EXPECT_EQ(calls("cuMemHostRegister"), 2u);
    EXPECT_EQ(calls("cuMemHostUnregister"), 1u) << "a page is registered once";
    EXPECT_NE(acquire(0, 3 * kMegabyte), nullptr);
    EXPECT_EQ(calls("cuMemHostRegister"), 2u);
    // From below, and over several.
    lock(6 * kMegabyte, kMegabyte);
    lock(8 * kMegabyte, kMegabyte);
    EXPECT_NE(acquire(5 * kMegabyte, 5 * kMegabyte), nullptr);
    EXPECT_TRUE(locked(5 * kMegabyte) && locked(10 * kMegabyte - 1));
    EXPECT_EQ(calls("cuMemHostRegister") - calls("cuMemHostUnregister"), 2u);
    // Neighbours stay what they are.
    lock(10 * kMegabyte, kMegabyte);
    EXPECT_EQ(calls("cuMemHostRegister") - calls("cuMemHostUnregister"), 3u);
}

TEST_F(HostRegistrationCacheTest, WhatIsHeldIsNotTakenApart) {
    HostRegistrationCache::Hold hold = lock(0, 2 * kMegabyte);
    ASSERT_NE(hold, nullptr);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(acquire(kMegabyte, 2 * kMegabyte), nullptr) << "a copy uses the first";
    }
    EXPECT_TRUE(locked(0));
    EXPECT_EQ(calls("cuMemHostUnregister"), 0u);
    hold.reset();
    EXPECT_EQ(calls("cuMemHostUnregister"), 0u) << "it may come again";
    acquire(kMegabyte, 2 * kMegabyte);
    EXPECT_NE(acquire(kMegabyte, 2 * kMegabyte), nullptr);
    EXPECT_TRUE(locked(0) && locked(3 * kMegabyte - 1));
}

TEST_F(HostRegistrationCacheTest, HeldMemoryIsUnlockedWithTheLastHold) {
    HostRegistrationCache::Hold hold = lock(0, kMegabyte);
    HostRegistrationCache::Hold second = acquire(0, kMegabyte);
    ASSERT_NE(second, nullptr);
    pins_.invalidate(memory_ + 100, 1);
    EXPECT_TRUE(locked(0));
    hold.reset();
    EXPECT_TRUE(locked(0));
    second.reset();
    EXPECT_FALSE(locked(0));
    EXPECT_EQ(calls("cuMemHostUnregister"), 1u);
}

TEST_F(HostRegistrationCacheTest, InvalidatedMemoryIsUnlockedAtOnceAndBeginsAnew) {
    lock(0, kMegabyte);
    lock(2 * kMegabyte, kMegabyte);
    pins_.invalidate(memory_ + kMegabyte, kMegabyte);
    EXPECT_TRUE(locked(0) && locked(2 * kMegabyte)) << "that was between them";
    pins_.invalidate(memory_ + kMegabyte - 1, 1);
    EXPECT_FALSE(locked(0));
    EXPECT_TRUE(locked(2 * kMegabyte));
    EXPECT_EQ(acquire(0, kMegabyte), nullptr) << "it is another memory now";
    EXPECT_NE(acquire(0, kMegabyte), nullptr);
    pins_.invalidate(memory_, kBytes);
    EXPECT_FALSE(locked(0) || locked(2 * kMegabyte));
    EXPECT_EQ(calls("cuMemHostRegister"), calls("cuMemHostUnregister"));
}

TEST_F(HostRegistrationCacheTest, OtherThreadsMayInvalidate) {
    lock(0, kMegabyte);
    std::thread([&] {
        pins_.invalidate(memory_, kMegabyte);
        EXPECT_EQ(current_context(), nullptr);
    }).join();
    EXPECT_FALSE(locked(0));
}

TEST_F(HostRegistrationCacheTest, ThreadsAcquireAndInvalidateAtOnce) {
    std::atomic<bool> stop{false};
    std::thread other([&] {
        for (size_t i = 0; !stop; ++i) {
            pins_.invalidate(memory_ + i % 16 * kMegabyte, kMegabyte);
        }
    });
    size_t held = 0;
    for (size_t i = 0; i < 3000; ++i) {
        const size_t offset = i % 8 * kMegabyte;
        // What the driver said a moment ago may be outdated, so it is not asked.
        const HostRegistrationCache::Hold hold =
            pins_.acquire(MemoryInfo(), memory_ + offset, 2 * kMegabyte, context_, kLong);
        held += hold != nullptr;
        if (hold != nullptr) {
            EXPECT_TRUE(locked(offset) && locked(offset + 2 * kMegabyte - 1));
        }
    }
    stop = true;
    other.join();
    pins_.invalidate(memory_, kBytes);
    EXPECT_EQ(calls("cuMemHostRegister"), calls("cuMemHostUnregister"));
    EXPECT_GT(held, 0u);
}

/** The driver waits for the work of the GPU: so does who unmaps the memory, and nobody else. */
TEST_F(HostRegistrationCacheTest, NobodyElseWaitsUntilItIsUnlocked) {
    ASSERT_NE(lock(0, kMegabyte), nullptr);
    ASSERT_NE(lock(2 * kMegabyte, kMegabyte), nullptr);
    reset_calls();
    const BusyGpu gpu(500000);
    std::thread unmapper([this] { pins_.invalidate(memory_, kPage); });
    while (calls("cuMemHostUnregister") == 0) {
        std::this_thread::yield();
    }
    EXPECT_NE(acquire_again(2 * kMegabyte, kMegabyte), nullptr);
    EXPECT_EQ(acquire_again(0, kMegabyte), nullptr);
    EXPECT_EQ(acquire_again(0, kMegabyte), nullptr) << "it cannot be locked yet";
    EXPECT_TRUE(gpu.is_busy());
    gpu.others_are_fast();
    pins_.invalidate(memory_ + kMegabyte / 2, kPage);
    EXPECT_FALSE(locked(0)) << "another part of it is unmapped at the same time";
    unmapper.join();
    EXPECT_FALSE(gpu.is_busy()) << "shows nothing";
    acquire_again(0, kMegabyte);
    EXPECT_NE(acquire_again(0, kMegabyte), nullptr);
}

/** A forked child unmaps memory while another thread of its parent locks some, and ends. */
TEST_F(HostRegistrationCacheTest, AForkedChildWaitsForNobody) {
    ASSERT_NE(lock(0, kMegabyte), nullptr);
    std::atomic<bool> stop{false};
    std::thread other([&] {
        StandbyKernels &kernels = StandbyKernels::instance();
        for (size_t i = 0; !stop; ++i) {
            const size_t offset = (2 + i % 8) * kMegabyte;
            acquire_again(offset, kMegabyte);
            pins_.invalidate(memory_ + (2 + (i + 4) % 8) * kMegabyte, kMegabyte);
            StandbyDemand::instance().want();
            kernels.tend(StandbyKernel::Moment::idle);
        }
    });
    constexpr int kChildren = 100;
    const int ended_well = children_that_end_well(kChildren, [this] {
        { const StandbyKernels::Absence no_kernel; }  // as within a call of the driver
        HostRegistrationCache::instance().invalidate(memory_, kBytes);
        munmap(memory_ + 8 * kMegabyte, kMegabyte);
        const HostRegistrationCache::Hold hold = acquire_again(0, kMegabyte);
        return hold == nullptr ? 0 : 1;
    });
    stop = true;
    other.join();
    EXPECT_EQ(ended_well, kChildren);
    EXPECT_TRUE(locked(0)) << "in the parent nothing has changed";
}

TEST_F(HostRegistrationCacheTest, LimitHoldsAndTheOldestGo) {
    pins_.enable(4 * kMegabyte);
    EXPECT_EQ(lock(0, 5 * kMegabyte), nullptr) << "more than the limit";
    EXPECT_FALSE(locked(0));
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_NE(lock(i * kMegabyte, kMegabyte), nullptr);
    }
    EXPECT_NE(acquire(0, kMegabyte), nullptr);  // the second is the oldest now
    EXPECT_NE(lock(4 * kMegabyte, kMegabyte), nullptr);
    EXPECT_TRUE(locked(0));
    EXPECT_FALSE(locked(kMegabyte));
    EXPECT_TRUE(locked(2 * kMegabyte) && locked(3 * kMegabyte) && locked(4 * kMegabyte));
}

TEST_F(HostRegistrationCacheTest, LimitHoldsForMergedRanges) {
    pins_.enable(4 * kMegabyte);
    for (size_t round = 0; round < 3; ++round) {
        for (size_t i = 0; i < 10; ++i) {
            acquire(i * kMegabyte, 2 * kMegabyte);
            size_t bytes = 0;
            for (size_t offset = 0; offset < kBytes; offset += kMegabyte) {
                bytes += locked(offset) ? kMegabyte : 0;
            }
            ASSERT_LE(bytes, 4 * kMegabyte) << i;
        }
    }
}

TEST_F(HostRegistrationCacheTest, WhatTheApplicationLockedIsUsedAsItIs) {
    Buffer pinned(MemoryKind::pinned, kMegabyte);
    pins_.enable(0);
    EXPECT_NE(
        pins_.acquire(query_memory(pinned.data()), pinned.data(), kMegabyte, context_, kShort),
        nullptr);
    pins_.enable(kUnlimited);
    EXPECT_NE(pins_.acquire(query_memory(pinned.data() + 5), pinned.data() + 5, 100, context_, 0),
              nullptr);
    EXPECT_EQ(calls("cuMemHostRegister"), 0u);
    EXPECT_FALSE(HostRegistrationCache::is_mapped_for_kernels(
        pins_.acquire(query_memory(pinned.data()), pinned.data(), 100, context_, 0)))
        << "the application may unlock it";
    EXPECT_TRUE(HostRegistrationCache::is_mapped_for_kernels(lock(0, kMegabyte)));
    pins_.invalidate(memory_, kMegabyte);
    // A range of which only a part is locked cannot be: not from its locked part, nor up to it.
    ASSERT_EQ(cuda_.mem_host_register(memory_ + kMegabyte, kMegabyte, 0), CUDA_SUCCESS);
    reset_calls();
    for (int i = 0; i < 5; ++i) {
        EXPECT_NE(acquire(kMegabyte, kMegabyte), nullptr);
        EXPECT_EQ(acquire(kMegabyte + kPage, kMegabyte), nullptr);
        EXPECT_EQ(acquire(0, 2 * kMegabyte), nullptr);
    }
    EXPECT_LE(calls("cuMemHostRegister"), 1u) << "a refusal is remembered";
    EXPECT_EQ(calls("cuMemHostUnregister"), 0u);
    EXPECT_EQ(cuda_.mem_host_unregister(memory_ + kMegabyte), CUDA_SUCCESS) << "it is the owner";
}

/** free() unmaps the heap of a thread, and the top of any, while it holds its own lock. */
TEST_F(HostRegistrationCacheTest, HeapsAreNotLocked) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    std::vector<unsigned char> small(8192);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(
            pins_.acquire(query_memory(small.data()), small.data(), small.size(), context_, kLong),
            nullptr);
    }
    EXPECT_EQ(calls("cuMemHostRegister"), 0u);
}

TEST_F(HostRegistrationCacheTest, GpuMemoryIsNotForIt) {
    Buffer device(MemoryKind::device, kMegabyte);
    Buffer managed(MemoryKind::managed, kMegabyte);
    for (const Buffer *buffer : {&device, &managed}) {
        for (int i = 0; i < 3; ++i) {
            EXPECT_EQ(pins_.acquire(query_memory(buffer->data()), buffer->data(), kMegabyte,
                                    context_, kLong),
                      nullptr);
        }
    }
    EXPECT_EQ(calls("cuMemHostRegister"), 0u);
}

TEST_F(HostRegistrationCacheTest, RefusalByTheDriverIsRemembered) {
    set_simulation("SIMCUDA_FAIL", "cuMemHostRegister:1:2");
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(acquire(0, kMegabyte), nullptr);
    }
    EXPECT_EQ(calls("cuMemHostRegister"), 1u);
    EXPECT_NE(lock(2 * kMegabyte, kMegabyte), nullptr) << "of that memory only";
}

/** The hold of what is locked keeps it, however the driver describes that memory meanwhile. */
TEST_F(HostRegistrationCacheTest, EachHoldKeepsIt) {
    lock(0, kMegabyte);
    pins_.enable(kMegabyte);
    ASSERT_EQ(query_memory(memory_).kind, MemoryKind::pinned);
    HostRegistrationCache::Hold hold = acquire(0, kMegabyte);
    ASSERT_NE(hold, nullptr);
    EXPECT_EQ(lock(4 * kMegabyte, kMegabyte), nullptr) << "there is no room while a copy uses it";
    EXPECT_TRUE(locked(0));
    hold.reset();
    EXPECT_NE(lock(4 * kMegabyte, kMegabyte), nullptr);
    EXPECT_FALSE(locked(0));
}

}  // namespace
}  // namespace gpushm
