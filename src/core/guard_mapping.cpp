// SPDX-License-Identifier: BSD-3-Clause
#include "core/guard_mapping.hpp"

#include "core/malloc_arena.hpp"

#include <algorithm>

namespace gpushm {

size_t guard_bytes(const MemoryMapping &mapping) {
    // CUDA takes addresses by pages of a GPU's, 2 MiB; no GPU has smaller ones than this beside its own 4 KiB.
    constexpr size_t kLeastOfGpu = 64u << 10;
    const size_t length = mapping.end - mapping.begin;
    if (mapping.is_accessible() || mapping.is_device()) {
        return 0;
    }
    if (mapping.is_file() || length < kLeastOfGpu) {
        return length;
    }
    if (is_in_arena(mapping.begin).value_or(false)) {
        return std::min(length, arena_heap_begin(mapping.begin) + kArenaHeapBytes - mapping.begin);
    }
    return 0;
}

}  // namespace gpushm
