// SPDX-License-Identifier: BSD-3-Clause
#include "core/pinning/lockable_memory.hpp"

#include "core/base/malloc_arena.hpp"
#include "core/base/unique_fd.hpp"

#include "test/gtest/core/shm/mapping.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace gpushm {
namespace {

using test::allocate_in_thread;
using test::malloc_is_glibcs;
using test::Mapping;

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
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
    EXPECT_FALSE(may_be_locked(neighbour.data(), kBytes + kPage)) << "a part is the heap's";
}

/** Whoever sets what a page is for makes several mappings of a heap. */
TEST(LockableMemory, NorAreThePartsOfOne) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const auto data = allocate_in_thread(8 * kPage);
    std::byte *const page = data.get() + kPage - reinterpret_cast<uintptr_t>(data.get()) % kPage;
    ASSERT_EQ(madvise(page, kPage, MADV_DONTFORK), 0);
    EXPECT_FALSE(may_be_locked(page));
    EXPECT_FALSE(may_be_locked(page + kPage));
    EXPECT_EQ(madvise(page, kPage, MADV_DOFORK), 0);
}

/** Its heaps are of another size then. */
TEST(LockableMemory, NothingIsWithAMallocOfHugePages) {
    const Mapping mapping(kBytes);
    ASSERT_TRUE(may_be_locked(mapping.data(), kBytes));
    setenv("GLIBC_TUNABLES", "glibc.malloc.check=0:glibc.malloc.hugetlb=2", 1);
    EXPECT_FALSE(may_be_locked(mapping.data(), kBytes));
    setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
    EXPECT_TRUE(may_be_locked(mapping.data(), kBytes));
    unsetenv("GLIBC_TUNABLES");
}

TEST(LockableMemory, TheMainHeapIsNot) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const std::unique_ptr<void, decltype(&free)> data(malloc(2 * kPage), free);
    EXPECT_FALSE(may_be_locked(data.get()));
}

TEST(LockableMemory, TheStackIsNot) {
    // Not a variable's address: the address sanitizer keeps some elsewhere.
    EXPECT_FALSE(may_be_locked(__builtin_frame_address(0), 1));
}

TEST(LockableMemory, WhatCannotBeWrittenIsNot) {
    const Mapping mapping(kBytes, PROT_READ);
    ASSERT_NE(mapping.data(), nullptr);
    EXPECT_FALSE(may_be_locked(mapping.data(), kBytes));
}

TEST(LockableMemory, WhatLeavesItsMappingIsNot) {
    const Mapping mapping(kBytes);
    ASSERT_EQ(mprotect(mapping.data() + kPage, kPage, PROT_READ), 0);
    EXPECT_TRUE(may_be_locked(mapping.data(), kPage));
    EXPECT_FALSE(may_be_locked(mapping.data(), kPage + 1));
}

/** Its pages may go by calls that do not name the address. */
TEST(LockableMemory, WhatIsOfAFileOrSharedIsNot) {
    const UniqueFd file(memfd_create("lockable memory", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
    const UniqueFd zeroes(open("/dev/zero", O_RDWR | O_CLOEXEC));
    struct {
        int flags;
        int file;
    } const kinds[] = {{MAP_SHARED, file.get()},
                       {MAP_PRIVATE, file.get()},
                       {MAP_SHARED, zeroes.get()},
                       {MAP_SHARED | MAP_ANONYMOUS, -1}};
    for (const auto &kind : kinds) {
        void *const memory =
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kind.flags, kind.file, 0);
        ASSERT_NE(memory, MAP_FAILED);
        EXPECT_FALSE(may_be_locked(memory, kBytes)) << kind.flags;
        munmap(memory, kBytes);
    }
    const int segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
    ASSERT_GE(segment, 0);
    void *const attached = shmat(segment, nullptr, 0);
    shmctl(segment, IPC_RMID, nullptr);
    EXPECT_FALSE(may_be_locked(attached, kBytes));
    shmdt(attached);
}

TEST(LockableMemory, WhatIsNotMappedIsNot) {
    EXPECT_FALSE(gpushm::may_be_locked(kPage, 2 * kPage));
}

}  // namespace
}  // namespace gpushm
