// SPDX-License-Identifier: BSD-3-Clause
#include "core/malloc_arena.hpp"

#include "core/cross_memory.hpp"

#include <unistd.h>

namespace gpushm {
namespace {

/** How glibc begins each heap (malloc/arena.c, heap_info; the same since 2.15). */
struct HeapInfo {
    uint64_t arena;  // malloc_state, behind the heap_info of the first heap
    uint64_t previous_heap;
    uint64_t size;
    uint64_t writable_size;

    bool is_plausible() const {
        constexpr uint64_t kLongestInfo = 256;  // 32 to 64 bytes by version
        constexpr uint64_t kPage = 4096;
        return arena % kArenaHeapBytes != 0 && arena % kArenaHeapBytes <= kLongestInfo &&
               previous_heap % kArenaHeapBytes == 0 && size != 0 && size % kPage == 0 &&
               size <= writable_size && writable_size % kPage == 0 && writable_size <= kArenaHeapBytes;
    }
};

}  // namespace

std::optional<bool> is_in_arena(uintptr_t address) {
    HeapInfo info;
    // By a system call, for it may be unmapped now, or never have been mapped.
    if (!read_memory(getpid(), &info, arena_heap_begin(address), sizeof(info))) {
        return std::nullopt;
    }
    return info.is_plausible();
}

}  // namespace gpushm
