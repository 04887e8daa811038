// SPDX-License-Identifier: BSD-3-Clause
// How the CPU loads a unit of core/standby_protocol.hpp as a GPU does.
#pragma once

#include "core/standby_protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

// The thread sanitizer knows nothing of loads of 16 bytes.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMCUDA_UNITS_IN_HALVES
#endif
#endif
#if defined(__SANITIZE_THREAD__) || !defined(__SSE2__)
#define SIMCUDA_UNITS_IN_HALVES
#else
#include <emmintrin.h>
#endif

namespace simcuda {

constexpr bool units_are_loaded_whole()
{
#ifdef SIMCUDA_UNITS_IN_HALVES
    return false;
#else
    return true;
#endif
}

// A unit in one piece, and everything that was written before it.
inline gpushm::StandbyUnit load_unit(const gpushm::StandbyUnit& unit)
{
    static_assert(sizeof(unit) == 16 && offsetof(gpushm::StandbyUnit, argument) == 8);
    gpushm::StandbyUnit loaded;
#ifdef SIMCUDA_UNITS_IN_HALVES
    // The half with the tag first: once that is there the other one stays as it is.
    const auto* halves = reinterpret_cast<const std::uint64_t*>(&unit);
    const std::uint64_t second = __atomic_load_n(&halves[1], __ATOMIC_ACQUIRE);
    const std::uint64_t first = __atomic_load_n(&halves[0], __ATOMIC_RELAXED);
    std::memcpy(&loaded.word, &first, sizeof(first));
    std::memcpy(&loaded.argument, &second, sizeof(second));
#else
    // The instruction is named: _mm_load_si128 becomes loads of the members where only these are
    // looked at (GCC 12). No later load of this processor comes before it.
    __m128i value;
    __asm__ __volatile__("movdqa %1, %0" : "=x"(value) : "m"(unit) : "memory");
    std::memcpy(&loaded, &value, sizeof(value));
#endif
    return loaded;
}

} // namespace simcuda
