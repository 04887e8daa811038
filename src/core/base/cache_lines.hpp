// SPDX-License-Identifier: BSD-3-Clause
// Prefetching cache lines.
#pragma once

#include "core/base/addresses.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gpushm {

inline constexpr size_t kLine = 64;  // bytes

/** How far a payload is prefetched before it is used. The processor prefetches the rest by itself
 * once it has seen the first lines. */
inline constexpr size_t kPrefetchBytes = 4096;

inline const unsigned char *begin_of_line(const unsigned char *address) {
    return address - to_number(address) % kLine;
}

/** Prefetches the line in a state in which it may be written. */
inline void prefetch_for_write(const void *address) {
#if defined(__x86_64__)
    // Not __builtin_prefetch: for baseline x86-64 it only fetches for reading. Processors without
    // the instruction take it for a nop (Intel SDM, PREFETCHW).
    __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char *>(address)));
#else
    __builtin_prefetch(address, 1);
#endif
}

/** Prefetches all lines of a payload that will be written. */
inline void prefetch_for_write(const unsigned char *payload, size_t length) {
    for (const unsigned char *line = begin_of_line(payload); line < payload + length;
         line += kLine) {
        prefetch_for_write(line);
    }
}

/** Prefetches the first lines of a payload that is used at once. */
inline void prefetch_payload(const unsigned char *payload, size_t length) {
    const unsigned char *const end = payload + std::min(length, kPrefetchBytes);
    for (const unsigned char *line = begin_of_line(payload); line < end; line += kLine) {
        __builtin_prefetch(line);
    }
}

}  // namespace gpushm
