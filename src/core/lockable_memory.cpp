// SPDX-License-Identifier: BSD-3-Clause
#include "core/lockable_memory.hpp"

#include "core/malloc_arena.hpp"
#include "core/memory_map.hpp"

namespace gpushm {
namespace {

bool may_be_in_arena(uintptr_t address, const MemoryMapping &mapping) {
    return is_in_arena(address).value_or(mapping.begin <= arena_heap_begin(address));
}

}  // namespace

bool may_be_locked(uintptr_t begin, uintptr_t end) {
    bool possible = false;
    for_each_mapping([&](const MemoryMapping &mapping) {
        if (begin >= mapping.end) {
            return true;
        }
        possible = begin >= mapping.begin && end <= mapping.end && mapping.readable &&
                   mapping.writable && mapping.path[0] != '[' && !mapping.is_device() &&
                   !may_be_in_arena(begin, mapping);
        return false;
    });
    return possible;
}

}  // namespace gpushm
