// SPDX-License-Identifier: BSD-3-Clause
// The parameters of the kernel of reduction_kernel.cu, which a launch passes by value.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kReductionKernelName[] = "gpushm_reduce";
constexpr uint32_t kReductionThreads = 256;  // of a block
constexpr uint32_t kReductionWord = 4;       // bytes

enum class ReductionOperation : uint32_t {
    max,
    min,
    sum,
    prod,
    land,
    band,
    lor,
    bor,
    lxor,
    bxor  // as openmpi/collectives/predefined_operations.cpp counts them
};

enum class ElementType : uint32_t {
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float32,
    float64
};

inline uint32_t element_bytes(ElementType type) {
    switch (type) {
        case ElementType::int8:
        case ElementType::uint8:
            return 1;
        case ElementType::int16:
        case ElementType::uint16:
            return 2;
        case ElementType::int32:
        case ElementType::uint32:
        case ElementType::float32:
            return 4;
        default:
            return 8;
    }
}

/** A kernel that reads a number at an address which is not aligned ends the context of the
 * application. */
inline bool is_aligned(const void *address, ElementType type) {
    return reinterpret_cast<uintptr_t>(address) % element_bytes(type) == 0;
}

/** For result[i] = first[i] OPERATION second[i]. Arrays of the GPU's address space. The result may
 * be one of the operands; otherwise they do not overlap. */
struct ReductionParameters {
    uint64_t result;
    uint64_t first;
    uint64_t second;
    uint64_t count;  // elements
    ReductionOperation operation;
    ElementType type;
};

/** Numbers that are smaller than a word of kReductionWord bytes are reduced by words, in arrays
 * that are aligned to them: the number of these words. The numbers behind them are reduced one by
 * one. */
#ifdef __CUDACC__
__host__ __device__
#endif
    inline uint64_t
    words_of(const ReductionParameters &parameters, uint64_t number_bytes) {
    const uint64_t addresses = parameters.result | parameters.first | parameters.second;
    return number_bytes < kReductionWord && addresses % kReductionWord == 0
               ? parameters.count / (kReductionWord / number_bytes)
               : 0;
}

}  // namespace gpushm
