// SPDX-License-Identifier: BSD-3-Clause
// Copies by functions of the driver, and launches of our kernels, on a stream of a context.
#pragma once

#include "core/copy/copy_batch.hpp"
#include "core/copy/copy_types.hpp"
#include "core/copy/gpu_context.hpp"

#include <cuda.h>

#include <cstddef>

namespace gpushm {

/** The most copies of a batch that the driver is given with one call. */
constexpr size_t kCopiesPerBatch = 64;

/** Submits one copy, twice if the driver refuses it. Returns what the driver says. */
CUresult submit_copy(const GpuContext &context, const CopyStream &stream, const BatchedCopy &copy);

/** Submits the copies of a batch that are not marked as failed, and marks those that the driver
 * refuses; logged. Or submits the reduction that takes their place. Whether any of it runs. */
bool submit_copies(const GpuContext &context, const CopyStream &stream, CopyBatch &batch);

/** Launches a kernel; CUDA_ERROR_NOT_SUPPORTED: the context does not have it. */
CUresult launch_kernel(const GpuContext &context, const CopyStream &stream,
                       const KernelLaunch &launch);

}  // namespace gpushm
