// SPDX-License-Identifier: BSD-3-Clause
// How processes name an allocation to each other: a peer can tell from it whether it has the
// allocation mapped, and which side should copy.
#pragma once

#include "core/memory/memory_info.hpp"

#include <cstdint>

namespace gpushm {

/** Travels in remote keys and requests. The process that owns the memory writes it. A reader trusts
 * it only to choose a path: a mapping is checked against what the driver says of it. No two
 * allocations have one key: `owner` is random, and the driver gives a buffer id once
 * (CU_POINTER_ATTRIBUTE_BUFFER_ID). So a mapping of freed memory is never taken for one of later
 * memory at the same address. */
struct BufferKey {
    enum class Sharing : uint8_t {
        none = 0,             // host or managed memory, or of a pool: cannot be mapped elsewhere
        ipc_handle = 1,       // cuIpcGetMemHandle
        file_descriptor = 2,  // cuMemExportToShareableHandle
    };

    uint64_t owner = 0;      // process_cookie().low of the owner
    uint64_t buffer_id = 0;  // 0: host memory
    uint64_t base = 0;       // address of the allocation in the owner
    uint64_t length = 0;     // of the allocation, bytes
    uint64_t device = 0;     // device_identity() of its GPU; 0: none
    MemoryKind kind = MemoryKind::host;
    Sharing sharing = Sharing::none;
    uint8_t on_cpu = 0;  // managed memory: its pages were on the CPU when the key was made
    uint8_t unused[5] = {};

    bool is_host_memory() const { return kind == MemoryKind::host || kind == MemoryKind::pinned; }
    /** Whether a CPU copies it. */
    bool cpu_copies() const { return is_host_memory() || on_cpu != 0; }

    bool can_be_mapped() const { return sharing != Sharing::none; }
};

/** The key of the allocation that `info` describes. At most one driver call, at the first use of a
 * device. */
BufferKey make_buffer_key(const MemoryInfo &info);
/** The key of memory that a GPU copies now, or else a CPU (gpu_copies()). */
BufferKey make_buffer_key(const MemoryInfo &info, bool by_gpu);

/** The identity of a GPU or MIG instance, equal in all processes whatever CUDA_VISIBLE_DEVICES
 * shows them; 0 when the driver does not tell. Thread safe; asks the driver once for each
 * device. */
uint64_t device_identity(CUdevice device);

}  // namespace gpushm
