// SPDX-License-Identifier: BSD-3-Clause
// Asking what kind of memory a pointer names.
#pragma once

#include "core/memory/known_host_pages.hpp"
#include "core/memory/memory_info.hpp"

namespace gpushm {

/** What the memory at `address` is. Takes one driver call. Takes none without a driver, nor for
 * memory that was asked for before and still exists, if the hooks of driver_hooks.hpp are
 * installed; memory of pools is always asked for. Never makes a context. Answers `host` while the
 * process has not initialised CUDA. When the driver fails (after a fault of a kernel, say), memory
 * that the CPU cannot read counts as device memory of no device: copies of it are gpu_error. Thread
 * safe.
 *
 * GPU memory is ready for a message when this returns: it waits for copies and memsets of the
 * application that have returned before they are done (core/cuda/unfinished_copies.hpp). Where
 * those are not noted (early_returns_are_noted()), it calls be_synchronous() the first time that it
 * sees an allocation. */
inline MemoryInfo query_memory(const void *address);

/** Whether query_memory() has found GPU memory in this process. */
bool gpu_memory_was_met();

/** query_memory() for memory that may be other memory than the CPU's. */
MemoryInfo query_any_memory(const void *address);

/** What the memory at `address` is, for callers that do not use its contents: waits for nothing,
 * and remembers nothing new. */
MemoryInfo look_up_memory(const void *address);

/** Makes copies and memsets of the application that touch this memory wait until they are done,
 * from now on and for good (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS; CUDA driver API manual, "API
 * synchronization behavior"): for memory that other processes access without a message of this
 * one. No effect on managed memory and memory of pools. */
void be_synchronous(const MemoryInfo &info, const void *address);

/** Whether host memory is page-locked now, and kernels find it at its address in this process. A
 * context must be current. One driver call. */
bool is_mapped_for_kernels(const void *address);

// Host programs ask about each buffer of each call of MPI several times.
inline MemoryInfo query_memory(const void *address) {
    return KnownHostPages::instance().contains(address) ? MemoryInfo() : query_any_memory(address);
}

}  // namespace gpushm
