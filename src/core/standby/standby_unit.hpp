// SPDX-License-Identifier: BSD-3-Clause
// How the CPU stores and loads a unit of standby_protocol.hpp: in one piece, like a GPU.
#pragma once

#include "core/kernels/standby_protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

// The thread sanitizer knows nothing of accesses of 16 bytes.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPUSHM_UNITS_IN_HALVES
#endif
#endif
#if defined(__SANITIZE_THREAD__) || !defined(__SSE2__)
#define GPUSHM_UNITS_IN_HALVES
#else
#include <emmintrin.h>
#endif

namespace gpushm {

/** Whether units go in one piece. In halves a unit may be seen torn when it is overwritten. Between
 * CPUs, which look at the half with the tag first, a unit that is written for the first time is not
 * seen torn. */
constexpr bool units_are_whole() {
#ifdef GPUSHM_UNITS_IN_HALVES
    return false;
#else
    return true;
#endif
}

/** One store of 16 bytes, ordered behind earlier stores. Inline assembly, because a compiler may
 * make two stores of 8 bytes of _mm_store_si128 (GCC 12 does). */
inline void store_unit(StandbyUnit &destination, const StandbyUnit &unit) {
    static_assert(sizeof(unit) == 16 && offsetof(StandbyUnit, argument) == 8, "two halves");
#ifdef GPUSHM_UNITS_IN_HALVES
    uint64_t values[2];
    memcpy(values, &unit, sizeof(values));
    auto *halves = reinterpret_cast<uint64_t *>(&destination);
    __atomic_store_n(&halves[0], values[0], __ATOMIC_RELAXED);
    __atomic_store_n(&halves[1], values[1], __ATOMIC_RELEASE);
#else
    __m128i value;
    memcpy(&value, &unit, sizeof(value));
    __asm__ __volatile__("movdqa %1, %0" : "=m"(destination) : "x"(value) : "memory");
#endif
}

/** One load of 16 bytes, ordered before later loads. Inline assembly, because a compiler may make
 * loads of single members of _mm_load_si128 (GCC 12 does). */
inline StandbyUnit load_unit(const StandbyUnit &source) {
    StandbyUnit unit;
#ifdef GPUSHM_UNITS_IN_HALVES
    const auto *halves = reinterpret_cast<const uint64_t *>(&source);
    const uint64_t second = __atomic_load_n(&halves[1], __ATOMIC_ACQUIRE);
    const uint64_t first = __atomic_load_n(&halves[0], __ATOMIC_RELAXED);
    memcpy(&unit.word, &first, sizeof(first));
    memcpy(&unit.argument, &second, sizeof(second));
#else
    __m128i value;
    __asm__ __volatile__("movdqa %1, %0" : "=x"(value) : "m"(source) : "memory");
    memcpy(&unit, &value, sizeof(unit));
#endif
    return unit;
}

}  // namespace gpushm
