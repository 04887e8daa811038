// SPDX-License-Identifier: BSD-3-Clause
#include "core/lockable_memory.hpp"

#include "core/malloc_arena.hpp"

#include "core_mapping.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace gpushm {
namespace {

using test::allocate_in_thread;
using test::malloc_is_glibcs;
using test::Mapping;

constexpr size_t kPage = 4096;
constexpr size_t kBytes = size_t{4} << 20;

bool may_be_locked(const void *address, size_t length = kPage) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    return gpushm::may_be_locked(begin, begin + length);
}

/** The first address at or above this one at which glibc may begin a heap. */
std::byte *round_up(std::byte *address) {
    const size_t beyond = reinterpret_cast<uintptr_t>(address) % kArenaHeapBytes;
    return beyond == 0 ? address : address + kArenaHeapBytes - beyond;
}

TEST(LockableMemory, WhatWasMappedIs) {
    const Mapping mapping(kBytes);
    ASSERT_NE(mapping.data(), nullptr);
    EXPECT_TRUE(may_be_locked(mapping.data(), kBytes));
    EXPECT_TRUE(may_be_locked(mapping.data() + kPage, kPage));
}

/** Linux 6.7 and later aligns large mappings, so that each 32nd begins where a heap could. */
TEST(LockableMemory, AlsoWhereAHeapCouldBegin) {
    const Mapping reserved(3 * kArenaHeapBytes, PROT_NONE);
    ASSERT_NE(reserved.data(), nullptr);
    std::byte *const heap = round_up(reserved.data() + kPage);
    ASSERT_EQ(mprotect(heap, kBytes, PROT_READ | PROT_WRITE), 0);
    EXPECT_TRUE(may_be_locked(heap, kBytes)) << "zeroes";
    EXPECT_TRUE(may_be_locked(heap + kPage, kPage));
    for (size_t i = 0; i < kPage; ++i) {
        heap[i] = std::byte(i + 1);
    }
    EXPECT_TRUE(may_be_locked(heap, kBytes)) << "data";
}

TEST(LockableMemory, HeapsOfThreadsAreNot) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const auto data = allocate_in_thread(2 * kPage);
    EXPECT_FALSE(may_be_locked(data.get()));
}

/** Below a heap there can be a mapping, with which it is one to the kernel. */
TEST(LockableMemory, NorAreTheyWithTheirNeighbour) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const auto data = allocate_in_thread(2 * kPage);
    std::byte *const heap = data.get() - reinterpret_cast<uintptr_t>(data.get()) % kArenaHeapBytes;
    const Mapping neighbour(kBytes, PROT_READ | PROT_WRITE, heap - kBytes);
    if (neighbour.data() == nullptr) {
        GTEST_SKIP() << "something else is mapped there";
    }
    EXPECT_FALSE(may_be_locked(data.get()));
    EXPECT_TRUE(may_be_locked(neighbour.data(), kBytes));
}

TEST(LockableMemory, TheMainHeapIsNot) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const std::unique_ptr<void, decltype(&free)> data(malloc(2 * kPage), free);
    EXPECT_FALSE(may_be_locked(data.get()));
}

TEST(LockableMemory, TheStackIsNot) {
    const std::byte here{};
    EXPECT_FALSE(may_be_locked(&here, 1));
}

TEST(LockableMemory, WhatCannotBeWrittenIsNot) {
    const Mapping mapping(kBytes, PROT_READ);
    EXPECT_FALSE(may_be_locked(mapping.data(), kBytes));
}

TEST(LockableMemory, WhatLeavesItsMappingIsNot) {
    const Mapping mapping(kBytes);
    ASSERT_EQ(mprotect(mapping.data() + kPage, kPage, PROT_READ), 0);
    EXPECT_TRUE(may_be_locked(mapping.data(), kPage));
    EXPECT_FALSE(may_be_locked(mapping.data(), kPage + 1));
}

TEST(LockableMemory, WhatIsNotMappedIsNot) {
    EXPECT_FALSE(gpushm::may_be_locked(kPage, 2 * kPage));
}

}  // namespace
}  // namespace gpushm
