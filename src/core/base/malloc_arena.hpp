// SPDX-License-Identifier: BSD-3-Clause
// The heaps of threads, which glibc's malloc() divides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Each heap of an arena has so much address space, from a multiple of it on (glibc,
 * malloc/arena.c, HEAP_MAX_SIZE), unless malloc_takes_huge_pages(). */
constexpr size_t kArenaHeapBytes = size_t{64} << 20;

/** Whether GLIBC_TUNABLES has glibc.malloc.hugetlb at 2 or more: heaps then have other sizes, by
 * that of the pages, and the main one is mapped, too (glibc 2.35, malloc/arena.c, heap_max_size()).
 */
bool malloc_takes_huge_pages();

/** Whether a heap begins at this multiple of kArenaHeapBytes, by what glibc writes there; empty
 * where that cannot be read. The kernel joins a heap with what is mapped below it, and begins large
 * mappings of others at round addresses too (Linux 6.7), so that addresses do not tell. Some system
 * calls. Thread safe. */
std::optional<bool> is_arena_heap(uintptr_t address);

}  // namespace gpushm
