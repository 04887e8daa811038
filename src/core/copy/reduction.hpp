// SPDX-License-Identifier: BSD-3-Clause
// Reductions of arrays in GPU memory.
#pragma once

#include "core/kernels/reduction_kernel.hpp"
#include "core/memory/memory_info.hpp"

#include <cstddef>

namespace gpushm {

/** Whether the reduction kernel has code for the operation on that type. */
bool is_reduction(ReductionOperation operation, ElementType type);

/** Whether the reduction kernel is loaded in the context of the device memory `gpu_side`. */
bool gpu_can_reduce(const MemoryInfo &gpu_side);

/** How reduce_on_gpu() ended. */
enum class GpuReduction {
    done,
    left_to_cpu,  // nothing was written
    lost,         // the driver does not say whether the kernel has run or will run; logged
};

/** Computes result[i] = first[i] `operation` second[i] for `count` elements, and waits. The GPU in
 * whose device memory the result lies does it. The result may be one of the operands. Thread safe.
 *
 * left_to_cpu: the result lies elsewhere, or the GPU has no code for the reduction, or an address
 * is not a multiple of element_bytes(), or the GPU reaches an operand only by a copy that does not
 * pay, or the driver does not launch the kernel. */
GpuReduction reduce_on_gpu(ReductionOperation operation, ElementType type, void *result,
                           const void *first, const void *second, size_t count);

}  // namespace gpushm
