// SPDX-License-Identifier: BSD-3-Clause
#include "core/lockable_memory.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <thread>

namespace gpushm {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kArena = size_t{64} << 20;
constexpr size_t kBytes = size_t{4} << 20;

bool may_be_locked(const void *address, size_t length = kPage) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    return gpushm::may_be_locked(begin, begin + length);
}

/** Mapped memory; unmapped at the end. Null where that is not possible. */
class Mapping {
public:
    explicit Mapping(size_t length, int protection = PROT_READ | PROT_WRITE, void *at = nullptr)
        : length_(length),
          data_(mmap(at, length, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED_NOREPLACE), -1, 0)) {
    }
    ~Mapping() {
        if (data() != nullptr) {
            munmap(data_, length_);
        }
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    std::byte *data() const {
        return data_ == MAP_FAILED ? nullptr : static_cast<std::byte *>(data_);
    }

private:
    const size_t length_;
    void *const data_;
};

/** The first address at or above this one at which glibc may begin a heap. */
std::byte *round_up(std::byte *address) {
    return address + (kArena - reinterpret_cast<uintptr_t>(address) % kArena) % kArena;
}

/** Not with the address sanitizer, whose heaps are simply mapped. */
bool malloc_is_glibcs() {
    Dl_info found;
    Dl_info libc;
    return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) != 0 &&
           dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &libc) != 0 &&
           found.dli_fbase == libc.dli_fbase;
}

/** A piece of a heap that is not the main one. */
std::shared_ptr<std::byte> allocate_in_thread() {
    void *data = nullptr;
    std::thread([&] { data = malloc(2 * kPage); }).join();
    return {static_cast<std::byte *>(data), free};
}

TEST(LockableMemory, WhatWasMappedIs) {
    const Mapping mapping(kBytes);
    ASSERT_NE(mapping.data(), nullptr);
    EXPECT_TRUE(may_be_locked(mapping.data(), kBytes));
    EXPECT_TRUE(may_be_locked(mapping.data() + kPage, kPage));
}

/** Linux 6.7 and later aligns large mappings, so that each 32nd begins where a heap could. */
TEST(LockableMemory, AlsoWhereAHeapCouldBegin) {
    const Mapping reserved(3 * kArena, PROT_NONE);
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
    const auto data = allocate_in_thread();
    EXPECT_FALSE(may_be_locked(data.get()));
}

/** Below a heap there can be a mapping, with which it is one to the kernel. */
TEST(LockableMemory, NorAreTheyWithTheirNeighbour) {
    if (!malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const auto data = allocate_in_thread();
    std::byte *const heap = data.get() - reinterpret_cast<uintptr_t>(data.get()) % kArena;
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
