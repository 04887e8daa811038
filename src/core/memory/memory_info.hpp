// SPDX-License-Identifier: BSD-3-Clause
// What kind of memory a pointer names.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gpushm {

enum class MemoryKind : uint8_t { host, pinned, device, managed };

const char *memory_kind_name(MemoryKind kind);

struct MemoryInfo {
    MemoryKind kind = MemoryKind::host;
    CUdevice device = 0;          // device and managed
    CUcontext context = nullptr;  // device and managed; null when the driver names none (memory
                                  // pools, virtual memory management)
    unsigned long long buffer_id = 0;
    void *base = nullptr;  // of the allocation, or of the mapping where memory is mapped by virtual
                           // memory management; null for memory that the driver does not know
    size_t length = 0;     // bytes from base; at least one for memory that a GPU has to copy
    bool ipc_capable = false;       // cuIpcGetMemHandle can export it
    bool exportable_by_fd = false;  // cuMemExportToShareableHandle can, as a file descriptor

    /** Whether the CPU may not touch it, or should not: the GPU copies it. */
    bool needs_gpu() const { return kind == MemoryKind::device || kind == MemoryKind::managed; }

    /** Whether cuMemAlloc gave it: cuMemFree waits for all work of its context. Memory of pools and
     * of virtual memory management may be unmapped before such work has ended. */
    bool is_of_mem_alloc() const {
        return kind == MemoryKind::device && ipc_capable && context != nullptr;
    }
};

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
