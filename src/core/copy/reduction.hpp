// SPDX-License-Identifier: BSD-3-Clause
// Reductions of arrays in GPU memory.
#pragma once

#include "core/kernels/reduction_kernel.hpp"
#include "core/memory/memory_info.hpp"

#include <cstddef>

namespace gpushm {

/** Bytes of an element. */
size_t element_bytes(ElementType type);

/** Whether GPUs have code for it. */
bool is_reduction(ReductionOperation operation, ElementType type);

/** Whether the GPU that `gpu_side` is memory of has it in that memory's context. */
bool gpu_can_reduce(const MemoryInfo &gpu_side);

/** How reduce_on_gpu() ended. */
enum class GpuReduction {
    done,
    left_to_cpu,  // nothing was done
    lost,         // the driver does not say whether it was done or will be; logged
};

/** result[i] = first[i] `operation` second[i] for `count` elements, by the GPU in whose device
 * memory the result is; the result may be one of the operands. Waits. It is left to the CPU when
 * the result is elsewhere, the GPU has no code for that, an address is not a multiple of
 * element_bytes(), or the GPU reaches an operand only by a copy that does not pay. A GPU that
 * launches nothing is found when the CPU copies. Thread safe. */
GpuReduction reduce_on_gpu(ReductionOperation operation, ElementType type, void *result,
                           const void *first, const void *second, size_t count);

}  // namespace gpushm
