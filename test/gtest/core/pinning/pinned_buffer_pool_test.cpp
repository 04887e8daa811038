// SPDX-License-Identifier: BSD-3-Clause
// PinnedBufferPool: page-locked memory, taken once and used again.
#include "core/copy/copy_any.hpp"
#include "core/copy/reachability.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = PinnedBufferPool::kBlockBytes;

class PinnedBufferPoolTest : public GpuTest {
protected:
    /** All that there are, in the order in which they came; to be given back. */
    std::vector<unsigned char *> take_all() {
        std::vector<unsigned char *> taken;
        for (void *block = blocks_.take(); block != nullptr; block = blocks_.take()) {
            taken.push_back(static_cast<unsigned char *>(block));
        }
        return taken;
    }
    void give_back(const std::vector<unsigned char *> &taken) {
        for (void *block : taken) {
            blocks_.give_back(block);
        }
    }

    PinnedBufferPool &blocks_ = PinnedBufferPool::instance();
};

TEST_F(PinnedBufferPoolTest, ArePageLockedFromTheFirstCopyOn) {
    Buffer device(MemoryKind::device, kBytes);
    device.fill(3);
    const HostBlock block(kBytes);
    auto *bytes = static_cast<unsigned char *>(block.address());
    ASSERT_EQ(copy_any(bytes, device.data(), kBytes), Status::ok);
    EXPECT_EQ(pattern_mismatch(bytes, kBytes, 3), kBytes);
    const MemoryInfo info = query_memory(bytes);
    EXPECT_EQ(info.kind, MemoryKind::pinned);
    EXPECT_TRUE(kernels_reach(info, bytes, kBytes, 0, context_));
    fill_pattern(bytes, kBytes, 4);
    ASSERT_EQ(copy_any(device.data(), bytes, kBytes), Status::ok);
    EXPECT_EQ(device.check(0, kBytes, 4, 0), "");
}

TEST_F(PinnedBufferPoolTest, AreUsedAgainWithoutACallOfTheDriver) {
    SKIP_UNLESS_SIMULATED();
    Buffer device(MemoryKind::device, kBytes);
    const void *first = nullptr;
    for (int i = 0; i < 3; ++i) {
        const HostBlock block(8);
        first = i == 0 ? block.address() : first;
        EXPECT_EQ(block.address(), first);
        ASSERT_EQ(copy_any(block.address(), device.data(), 8), Status::ok);
        if (i == 0) {
            reset_calls();
        }
    }
    EXPECT_EQ(calls("cuMemcpyAsync"), 2u);
    EXPECT_EQ(calls("cuMemHostRegister"), 0u);
    EXPECT_EQ(calls("cuMemHostUnregister"), 0u);
}

TEST_F(PinnedBufferPoolTest, AreFewAndApart) {
    const std::vector<unsigned char *> taken = take_all();
    EXPECT_EQ(taken.size(), 16u);
    const std::set<unsigned char *> sorted(taken.begin(), taken.end());
    ASSERT_EQ(sorted.size(), taken.size());
    EXPECT_EQ(*sorted.rbegin() - *sorted.begin(), 15 * static_cast<ptrdiff_t>(kBytes));
    for (unsigned char *block : taken) {
        EXPECT_EQ((block - *sorted.begin()) % static_cast<ptrdiff_t>(kBytes), 0);
        memset(block, 0x5a, kBytes);
    }
    give_back(taken);
    EXPECT_EQ(take_all(), taken);
    give_back(taken);
}

TEST_F(PinnedBufferPoolTest, OneThatIsGivenBackIsTheNext) {
    const std::vector<unsigned char *> taken = take_all();
    ASSERT_EQ(taken.size(), 16u);
    blocks_.give_back(taken[9]);
    EXPECT_EQ(blocks_.take(), taken[9]);
    EXPECT_EQ(blocks_.take(), nullptr);
    give_back(taken);
}

TEST_F(PinnedBufferPoolTest, OrdinaryMemoryIsThereForOthers) {
    const std::vector<unsigned char *> taken = take_all();
    Buffer device(MemoryKind::device, kBytes);
    device.fill(5);
    {
        const HostBlock large(PinnedBufferPool::kLargeBlockBytes + 1);
        const HostBlock taken_by_others(PinnedBufferPool::kSmallBlockBytes + 1);
        for (const HostBlock *block : {&large, &taken_by_others}) {
            auto *bytes = static_cast<unsigned char *>(block->address());
            ASSERT_NE(bytes, nullptr);
            EXPECT_EQ(query_memory(bytes).kind, MemoryKind::host);
            ASSERT_EQ(copy_any(bytes, device.data(), 8), Status::ok);
            EXPECT_EQ(pattern_mismatch(bytes, 8, 5), 8u);
        }
    }
    give_back(taken);
    const HostBlock large(kBytes + 1);
    EXPECT_EQ(take_all(), taken) << "nothing of ours was used for it";
    give_back(taken);
}

TEST_F(PinnedBufferPoolTest, LargeOnesAreTwoAndApart) {
    constexpr size_t kLarge = PinnedBufferPool::kLargeBlockBytes;
    const HostBlock first(kBytes + 1);
    const HostBlock second(kLarge);
    const HostBlock third(kLarge);
    EXPECT_TRUE(first.is_of_pool());
    EXPECT_TRUE(second.is_of_pool());
    EXPECT_FALSE(third.is_of_pool());
    EXPECT_GE(std::abs(static_cast<unsigned char *>(second.address()) -
                       static_cast<unsigned char *>(first.address())),
              static_cast<ptrdiff_t>(kLarge));
    Buffer device(MemoryKind::device, kLarge);
    device.fill(6);
    for (const HostBlock *block : {&first, &second, &third}) {
        memset(block->address(), 0x5a, kLarge);
        ASSERT_EQ(copy_any(block->address(), device.data(), kLarge), Status::ok);
        EXPECT_EQ(pattern_mismatch(static_cast<unsigned char *>(block->address()), kLarge, 6),
                  kLarge);
        EXPECT_EQ(query_memory(block->address()).kind == MemoryKind::pinned, block->is_of_pool());
    }
}

TEST_F(PinnedBufferPoolTest, SmallOnesAreMoreAndApart) {
    constexpr size_t kSmall = PinnedBufferPool::kSmallBlockBytes;
    std::vector<std::unique_ptr<HostBlock>> taken;
    std::set<unsigned char *> addresses;
    for (size_t i = 0; i < PinnedBufferPool::kSmallBlocks; ++i) {
        taken.push_back(std::make_unique<HostBlock>(i % 2 == 0 ? kSmall : 1));
        ASSERT_TRUE(taken.back()->is_of_pool());
        addresses.insert(static_cast<unsigned char *>(taken.back()->address()));
    }
    EXPECT_EQ(addresses.size(), taken.size());
    for (auto block = addresses.begin(), next = std::next(block); next != addresses.end();
         block = next++) {
        EXPECT_GE(*next - *block, static_cast<ptrdiff_t>(kSmall));
    }
    {
        const HostBlock one_more(kSmall);
        EXPECT_NE(one_more.address(), nullptr);
        EXPECT_FALSE(one_more.is_of_pool());
    }
    EXPECT_EQ(count_free_pinned_buffer_pool(), PinnedBufferPool::kBlocks);
    void *const last = taken.back()->address();
    taken.pop_back();
    EXPECT_EQ(HostBlock(kSmall).address(), last);
}

/** Takes blocks, each for a moment; the number of those that another thread had, too. */
int count_shared_blocks() {
    int shared = 0;
    for (int i = 0; i < 2000000; ++i) {
        const HostBlock block(kBytes);
        auto *owners = static_cast<std::atomic<int> *>(block.address());
        shared += owners->fetch_add(1, std::memory_order_relaxed) != 0 ? 1 : 0;
        owners->fetch_sub(1, std::memory_order_relaxed);
    }
    return shared;
}

TEST_F(PinnedBufferPoolTest, NoTwoThreadsHaveTheSame) {
    const std::vector<unsigned char *> taken = take_all();
    for (unsigned char *block : taken) {
        new (block) std::atomic<int>(0);
    }
    give_back(taken);
    std::atomic<int> shared{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&shared] { shared += count_shared_blocks(); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(shared, 0);
}

/** In a child: whether there is anything at `address`. */
bool is_mapped(void *address) {
    unsigned char resident = 0;
    return mincore(address, 1, &resident) == 0;
}

/** The driver goes on using the pages that the parent had, which must not become the child's. */
TEST_F(PinnedBufferPoolTest, AForkedChildHasItsOwn) {
    auto *parents = static_cast<unsigned char *>(blocks_.take());
    auto *parents_small = static_cast<unsigned char *>(PinnedBufferPool::of_small_blocks().take());
    memset(parents, 1, kBytes);
    memset(parents_small, 1, PinnedBufferPool::kSmallBlockBytes);
    const pid_t child = fork();
    if (child == 0) {
        if (is_mapped(parents) || is_mapped(parents_small)) {
            _exit(1);
        }
        const std::vector<unsigned char *> own = take_all();
        for (unsigned char *block : own) {
            memset(block, 2, kBytes);
        }
        void *const small = PinnedBufferPool::of_small_blocks().take();
        _exit(own.size() == 16 && small != nullptr ? 0 : 2);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(parents[0], 1);
    EXPECT_EQ(parents[kBytes - 1], 1);
    blocks_.give_back(parents);
    EXPECT_EQ(parents_small[0], 1);
    PinnedBufferPool::of_small_blocks().give_back(parents_small);
}

}  // namespace
}  // namespace gpushm
