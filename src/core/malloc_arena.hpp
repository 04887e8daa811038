// SPDX-License-Identifier: BSD-3-Clause
// The heaps of threads, which glibc's malloc() divides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Each heap of an arena has so much address space, from a multiple of it on (glibc, malloc/arena.c,
 *  HEAP_MAX_SIZE). */
constexpr size_t kArenaHeapBytes = size_t{64} << 20;

/** Where the heap would begin that `address` lies in. */
inline uintptr_t arena_heap_begin(uintptr_t address) { return address - address % kArenaHeapBytes; }

/** Whether there is one, by what glibc writes at its beginning; empty where that cannot be read. The kernel joins a
 *  heap with what is mapped below it, and begins large mappings of others at round addresses too (Linux 6.7), so
 *  that addresses do not tell. A system call. Thread safe. */
std::optional<bool> is_in_arena(uintptr_t address);

}  // namespace gpushm
