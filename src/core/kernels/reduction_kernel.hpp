// SPDX-License-Identifier: BSD-3-Clause
// The parameters of the kernel of reduction_kernel.cu, which a launch passes by value.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kReductionKernelName[] = "gpushm_reduce";
constexpr uint32_t kReductionThreads = 256;  // of a block

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

}  // namespace gpushm
