// SPDX-License-Identifier: BSD-3-Clause
// Loads and stores of the standby kernel (standby_kernel.cu). For nvcc only.
#pragma once

#include "core/kernels/standby_protocol.hpp"

namespace {

using gpushm::StandbyUnit;

__device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/** One load of 16 bytes, which never returns an older value than an earlier load. */
__device__ StandbyUnit load_unit(const StandbyUnit *unit) {
    uint64_t low;
    uint64_t high;
    asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high)
                 : "l"(unit)
                 : "memory");
    return {low, static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
}

/** One store of 16 bytes. */
__device__ void store_unit(StandbyUnit *unit, uint64_t word, uint32_t argument, uint32_t tag) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(unit), "l"(word),
                 "l"(static_cast<uint64_t>(tag) << 32 | argument)
                 : "memory");
}

__device__ void store_relaxed(uint32_t *word, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ void store_release(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ void store_release(uint64_t *word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/** A load past this GPU's first-level cache, which may hold bytes that somebody else has
 * overwritten.
 */
template <typename Word>
__device__ Word load_fresh(uint64_t address) {
    return __ldcv(reinterpret_cast<const Word *>(address));
}

template <typename Word>
__device__ void store_through(uint64_t address, Word value) {
    __stwt(reinterpret_cast<Word *>(address), value);
}

}  // namespace
