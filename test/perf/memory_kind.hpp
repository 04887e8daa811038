// SPDX-License-Identifier: BSD-3-Clause
// The kinds of memory, and what the command line calls them.
#pragma once

#include <string>
#include <vector>

namespace gpushm::perf {

/** `pinned`: page-locked when it is allocated. `registered`: shared memory, page-locked afterwards,
 * as transports between processes have it. `pool`: device memory of the default memory pool. `vmm`:
 * device memory of virtual memory management, which can be exported by a file descriptor.
 * `unmappable`: the same, but it cannot be exported, so no other process can map it. `imported`:
 * device memory of another process. */
enum class MemoryKind {
    host,
    pinned,
    registered,
    device,
    pool,
    vmm,
    unmappable,
    managed,
    imported
};

/** Host, pinned, device, pool, vmm and managed have names. Throws std::runtime_error for another
 * name. */
MemoryKind parse_memory_kind(const std::string &name);

/** Of a kind that has a name. */
std::string name_of(MemoryKind kind);

/** Whether the CPU cannot reach it. */
bool is_device_memory(MemoryKind kind);

/** Whether processes with these kinds of memory on one GPU wait for each other in a round trip that
 * neither direction alone needs: each process copies once, and they take turns by time slices of
 * 2 ms. So it is where one side only has GPU memory. */
bool takes_turns_on_one_gpu(MemoryKind from, MemoryKind to);

}  // namespace gpushm::perf
