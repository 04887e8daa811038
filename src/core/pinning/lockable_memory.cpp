// SPDX-License-Identifier: BSD-3-Clause
#include "core/pinning/lockable_memory.hpp"

#include "core/base/malloc_arena.hpp"
#include "core/base/memory_map.hpp"

namespace gpushm {
namespace {

/** Whether malloc() may own it: readable, writable, of no file. */
bool is_anonymous(const MemoryMapping &mapping) {
    return mapping.readable && mapping.writable && mapping.path[0] != '/';
}

/** `known_to_be_none`: the mapping where a heap could begin before `begin` cannot be one. */
bool may_be_in_arena(uintptr_t begin, uintptr_t end, bool known_to_be_none) {
    const uintptr_t first = begin - begin % kArenaHeapBytes;
    for (uintptr_t heap = first; heap < end; heap += kArenaHeapBytes) {
        if (!(heap == first && known_to_be_none) && is_arena_heap(heap).value_or(true)) {
            return true;
        }
    }
    return false;
}

}  // namespace

bool may_be_locked(uintptr_t begin, uintptr_t end) {
    if (malloc_takes_huge_pages()) {
        return false;
    }
    const uintptr_t heap = begin - begin % kArenaHeapBytes;
    bool is_heap_mapped = false;
    bool possible = false;
    for_each_mapping([&](const MemoryMapping &mapping) {
        if (heap >= mapping.begin && heap < mapping.end) {
            is_heap_mapped = is_anonymous(mapping);
        }
        if (begin >= mapping.end) {
            return true;
        }
        possible = begin >= mapping.begin && end <= mapping.end && mapping.readable &&
                   mapping.writable && !mapping.shared && mapping.path[0] == '\0' &&
                   !may_be_in_arena(begin, end, !is_heap_mapped);
        return false;
    });
    return possible;
}

}  // namespace gpushm
