// SPDX-License-Identifier: BSD-3-Clause
// The heaps from which malloc() of glibc serves threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Each heap of an arena takes this much address space and begins at a multiple of it (glibc,
 * malloc/arena.c, HEAP_MAX_SIZE), unless malloc_takes_huge_pages(). */
constexpr size_t kArenaHeapBytes = size_t{64} << 20;

/** Whether GLIBC_TUNABLES sets glibc.malloc.hugetlb to 2 or more. Heaps then have other sizes,
 * which depend on the page size, and the main heap is mapped as well (glibc 2.35, malloc/arena.c,
 * heap_max_size()). */
bool malloc_takes_huge_pages();

/** Whether a heap begins at this multiple of kArenaHeapBytes, by what glibc writes there; empty
 * where that cannot be read. The address alone does not tell: Linux joins a heap with what is
 * mapped below it, and since 6.7 begins large mappings at round addresses too. Some system calls.
 * Thread safe. */
std::optional<bool> is_arena_heap(uintptr_t address);

}  // namespace gpushm
