// SPDX-License-Identifier: BSD-3-Clause
// What is known of the memory at a pointer.
#pragma once

#include "core/base/addresses.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gpushm {

enum class MemoryKind : uint8_t { host, pinned, device, managed };

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

    /** The address behind the last byte. */
    uintptr_t range_end() const { return to_number(base) + length; }
    bool contains(const void *address) const {
        return to_number(address) - to_number(base) < length;
    }

    /** Whether the CPU must not touch it, or should not: a GPU copies it. */
    bool needs_gpu() const { return kind == MemoryKind::device || kind == MemoryKind::managed; }

    /** Whether cuMemAlloc allocated it. cuMemFree waits for all work of its context; memory of
     * pools and of virtual memory management may be unmapped while such work runs. */
    bool is_of_mem_alloc() const {
        return kind == MemoryKind::device && ipc_capable && context != nullptr;
    }
};

}  // namespace gpushm
