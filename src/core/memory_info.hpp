// SPDX-License-Identifier: BSD-3-Clause
// What kind of memory a pointer names.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace gpushm {

enum class MemoryKind { host, pinned, device, managed };

const char *memory_kind_name(MemoryKind kind);

struct MemoryInfo {
    MemoryKind kind = MemoryKind::host;
    CUdevice device = 0;           // device and managed
    CUcontext context = nullptr;   // device and managed; null when the driver names none (memory
                                   // pools, virtual memory management)
    unsigned long long buffer_id = 0;

    /** Whether the CPU may not touch it, or should not: the GPU copies it. */
    bool needs_gpu() const { return kind == MemoryKind::device || kind == MemoryKind::managed; }
};

/** Asks the driver; one driver call, none where there is no driver. Never makes a context, and
 *  answers `host` while the process has not initialised CUDA. When the driver fails (after a kernel
 *  fault, say), what the CPU cannot read is device memory of no device: copies of it are gpu_error.
 *  Thread safe.
 *
 *  The first time that an allocation is seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is set on it: without
 *  it cuMemcpy between device buffers and cuMemset return before they are done, and a message sent
 *  right after would read old data (CUDA driver API manual, "API synchronization behavior"). */
MemoryInfo query_memory(const void *address);

/** The allocation in which `address`, device or managed memory, lies. False when the driver does not
 *  know it. */
bool query_allocation(const void *address, void **base, size_t *length);

}  // namespace gpushm
