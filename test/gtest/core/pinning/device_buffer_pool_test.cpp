// SPDX-License-Identifier: BSD-3-Clause
// DeviceBufferPool: memory of the right GPU, taken once and used again.
#include "core/pinning/device_buffer_pool.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <cstdio>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kMiB = 1u << 20;

class DeviceBufferPoolTest : public GpuTest {
protected:
    DeviceBufferPool &blocks_ = DeviceBufferPool::instance();
    Buffer buffer_{MemoryKind::device, 4096};
    MemoryInfo near_ = query_memory(buffer_.data());
};

TEST_F(DeviceBufferPoolTest, AreDeviceMemoryOfTheSameContext) {
    void *block = blocks_.take(5 * kMiB, near_);
    ASSERT_NE(block, nullptr);
    const MemoryInfo info = query_memory(block);
    EXPECT_EQ(info.kind, MemoryKind::device);
    EXPECT_EQ(info.context, near_.context);
    EXPECT_EQ(info.device, near_.device);
    EXPECT_GE(info.length, 5 * kMiB);
    EXPECT_TRUE(blocks_.any_taken());
    EXPECT_TRUE(blocks_.give_back(block));
    EXPECT_FALSE(blocks_.any_taken());
    EXPECT_FALSE(blocks_.give_back(block)) << "it is not taken any more";
}

TEST_F(DeviceBufferPoolTest, TakenTogetherAreApart) {
    std::vector<unsigned char *> taken;
    for (int i = 0; i < 4; ++i) {
        taken.push_back(static_cast<unsigned char *>(blocks_.take(kMiB, near_)));
        ASSERT_NE(taken.back(), nullptr);
        for (int j = 0; j < i; ++j) {
            EXPECT_TRUE(taken[j] + kMiB <= taken[i] || taken[i] + kMiB <= taken[j]);
        }
    }
    for (void *block : taken) {
        EXPECT_TRUE(blocks_.give_back(block));
    }
}

TEST_F(DeviceBufferPoolTest, AreUsedAgain) {
    SKIP_UNLESS_SIMULATED();
    void *block = blocks_.take(20 * kMiB, near_);
    blocks_.give_back(block);
    reset_calls();
    for (const size_t bytes : {20 * kMiB, 19 * kMiB, 21 * kMiB}) {
        EXPECT_EQ(blocks_.take(bytes, near_), block) << bytes;
        blocks_.give_back(block);
    }
    EXPECT_EQ(calls("cuMemAlloc"), 0u);
}

TEST_F(DeviceBufferPoolTest, KnowNothingOfOtherMemory) {
    EXPECT_FALSE(blocks_.give_back(buffer_.data()));
    EXPECT_FALSE(blocks_.give_back(nullptr));
    int local = 0;
    EXPECT_FALSE(blocks_.give_back(&local));
}

TEST_F(DeviceBufferPoolTest, AreNotThereForOtherKinds) {
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned, MemoryKind::managed}) {
        Buffer other(kind, 4096);
        EXPECT_EQ(blocks_.take(kMiB, query_memory(other.data())), nullptr);
    }
}

/** Nobody waits for that: cuMemFree is called in the background. */
TEST_F(DeviceBufferPoolTest, GoBackToTheDriverWhenTheyAreTooMany) {
    SKIP_UNLESS_SIMULATED();
    std::vector<void *> taken;
    for (int i = 0; i < 5; ++i) {
        taken.push_back(blocks_.take(60 * kMiB, near_));
        ASSERT_NE(taken.back(), nullptr);
    }
    reset_calls();
    for (void *block : taken) {
        EXPECT_TRUE(blocks_.give_back(block));
    }
    // At most three of them fit what is kept.
    await_background_calls("cuMemFree", 2);
    EXPECT_GE(calls("cuMemFree"), 2u);
    EXPECT_LE(calls("cuMemFree"), 5u);
}

TEST_F(DeviceBufferPoolTest, LeaveMemoryToTheApplication) {
    EXPECT_EQ(blocks_.take(size_t{1} << 31, near_), nullptr);
    EXPECT_EQ(blocks_.take(~size_t{0}, near_), nullptr);
    std::vector<void *> taken;
    for (void *block = blocks_.take(200 * kMiB, near_); block != nullptr && taken.size() < 10;
         block = blocks_.take(200 * kMiB, near_)) {
        taken.push_back(block);
    }
    EXPECT_EQ(taken.size(), 4u);
    for (void *block : taken) {
        EXPECT_TRUE(blocks_.give_back(block));
    }
    EXPECT_TRUE(await_background()) << "most of it goes back to the driver";
    void *block = blocks_.take(200 * kMiB, near_);
    EXPECT_NE(block, nullptr);
    blocks_.give_back(block);
}

TEST_F(DeviceBufferPoolTest, WithoutMemoryThereIsNone) {
    SKIP_UNLESS_SIMULATED();
    set_simulation("SIMCUDA_FAIL", "cuMemAlloc:1:2");
    EXPECT_EQ(blocks_.take(97 * kMiB, near_), nullptr);
    EXPECT_FALSE(blocks_.any_taken());
}

/** When one is made, given back, and taken again. In a process of its own, where it is the only
 * one. */
FreshProcess one_failure("device-blocks-one-failure", [] {
    CHECK(enter_primary_context(0) != nullptr);
    const Buffer buffer(MemoryKind::device, 4096);
    const MemoryInfo near = query_memory(buffer.data());
    DeviceBufferPool &blocks = DeviceBufferPool::instance();
    const LogCapture log;
    const auto once = [](const char *rule, auto function) {
        set_simulation("SIMCUDA_FAIL", rule);
        const auto result = function();
        set_simulation("SIMCUDA_FAIL", "");
        return result;
    };
    const char *const rule = "cuPointerGetAttributes:1:700";
    const auto take = [&] { return blocks.take(70 * kMiB, near); };
    void *const block = once(rule, take);
    CHECK(block != nullptr);
    reset_calls();
    CHECK(blocks.give_back(block) && take() == block);
    CHECK(once(rule, [&] { return blocks.give_back(block); }));
    CHECK(once(rule, take) == block && blocks.give_back(block));
    CHECK(calls("cuMemAlloc") == 0);
    return 0;
});

TEST_F(DeviceBufferPoolTest, AreNotLostByOneFailureOfTheDriver) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(one_failure.run(), 0);
}

/** They do not count among those that are kept. In a process of its own, where none are. */
FreshProcess gone_blocks("device-blocks-gone", [] {
    CHECK(enter_primary_context(0) != nullptr);
    const Buffer buffer(MemoryKind::device, 4096);
    const MemoryInfo near = query_memory(buffer.data());
    DeviceBufferPool &blocks = DeviceBufferPool::instance();
    for (const bool ends_first : {false, true}) {
        for (int i = 0; i < 3; ++i) {
            const CUcontext other = make_context();
            void *block = nullptr;
            {
                const CurrentContext current(CudaDriver::get(), other);
                const Buffer there(MemoryKind::device, 4096);
                block = blocks.take(100 * kMiB, query_memory(there.data()));
            }
            CHECK(block != nullptr);
            CHECK(ends_first || blocks.give_back(block));
            destroy_context(other);
            CHECK(!ends_first || blocks.give_back(block));
            CHECK(!blocks.any_taken());
        }
        void *block = blocks.take(200 * kMiB, near);
        CHECK(block != nullptr && blocks.give_back(block));
        CHECK(await_background());
        reset_calls();
        CHECK(blocks.take(200 * kMiB, near) == block && blocks.give_back(block));
        CHECK(calls("cuMemAlloc") == 0 && calls("cuMemFree") == 0);
    }
    return 0;
});

TEST_F(DeviceBufferPoolTest, ThatWentWithTheirContextAreForgotten) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(gone_blocks.run(), 0);
}

}  // namespace
}  // namespace gpushm
