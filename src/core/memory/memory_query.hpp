// SPDX-License-Identifier: BSD-3-Clause
// Asking what kind of memory a pointer names.
#pragma once

#include "core/memory/memory_info.hpp"

namespace gpushm {

/** One call of the driver, none where there is no driver; none either, with driver_hooks.hpp, for
 * what was asked before and still lives, memory of pools excepted. Never makes a context, and
 * answers `host` while the process has not initialised CUDA. When the driver fails (after a kernel
 * fault, say), what the CPU cannot read is device memory of no device: copies of it are gpu_error.
 * Thread safe.
 *
 * Memory that a GPU has to copy is ready for a message when this returns: it waits for copies and
 * memsets of the application that have returned before they are done
 * (core/cuda/unfinished_copies.hpp). Where those are not noted (early_returns_are_noted()),
 * be_synchronous() is done the first time that an allocation is seen. */
MemoryInfo query_memory(const void *address);

/** The same of memory whose contents do not matter to the caller: it waits for nothing, and of what
 * is not known it tells nobody else. */
MemoryInfo look_up_memory(const void *address);

/** Has the driver wait in copies and memsets of the application that touch this memory, from now on
 * and for good (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS; CUDA driver API manual, "API synchronization
 * behavior"): for memory that other processes access without a message of this one. No effect on
 * managed memory and memory of pools. */
void be_synchronous(const MemoryInfo &info, const void *address);

/** Whether host memory is page-locked now, and kernels find it at the address that it has here. A
 * context must be current. One driver call. */
bool is_mapped_for_kernels(const void *address);

}  // namespace gpushm
