// SPDX-License-Identifier: BSD-3-Clause
// Which memory kernels of a context may touch.
#pragma once

#include "core/memory/memory_info.hpp"

#include <cuda.h>

#include <cstddef>

namespace gpushm {

/** Whether [address, +length) lies in the allocation that `info` describes. */
bool covers(const MemoryInfo &info, const void *address, size_t length);

/** Whether [address, +length) lies in the allocation that `info` describes, and that is memory of
 * the GPU that `info` names. Imported memory, which may be of another GPU, is not IPC capable. */
bool is_of_gpu(const MemoryInfo &info, const void *address, size_t length);

/** is_of_gpu() for the GPU and the context of `other`, which is device memory, too. */
bool is_of_same_gpu(const MemoryInfo &other, const MemoryInfo &info, const void *address,
                    size_t length);

/** Whether kernels of `context`, which is one of `device`, surely reach [address, +length). `info`
 * is that of `address`; `length` is not 0. They reach memory of the context, memory that names no
 * context and that this one may access, and page-locked memory that is mapped. The manual promises
 * memory of another context on the GPU only behind cuCtxEnablePeerAccess. A copy engine returns an
 * error for a wrong address, but a kernel that uses one ends the context of the application.
 *
 * The context must be current for page-locked memory. Thread safe. */
bool kernels_reach(const MemoryInfo &info, const void *address, size_t length, CUdevice device,
                   CUcontext context);

}  // namespace gpushm
