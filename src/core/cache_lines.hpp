// SPDX-License-Identifier: BSD-3-Clause
// Cache lines, asked for before they are touched.
#pragma once

#include <algorithm>
#include <cstddef>

namespace gpushm {

inline constexpr size_t kLine = 64;  // bytes

/** How far a payload is fetched before it is touched. What lies behind is fetched by the processor, which has seen
 *  the first lines go by. */
inline constexpr size_t kPrefetchBytes = 4096;

/** Asks for the line in a state in which it may be written. */
inline void prefetch_for_write(const void *address) {
#if defined(__x86_64__)
    // Not __builtin_prefetch: for baseline x86-64 it only fetches for reading. Processors without
    // the instruction take it for a nop (Intel SDM, PREFETCHW).
    __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char *>(address)));
#else
    __builtin_prefetch(address, 1);
#endif
}

/** Asks for the first lines of a payload that is used at once. */
inline void prefetch_payload(const unsigned char *payload, size_t length) {
    for (size_t offset = 0; offset < std::min(length, kPrefetchBytes); offset += kLine) {
        __builtin_prefetch(payload + offset);
    }
}

}  // namespace gpushm
