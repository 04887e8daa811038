// SPDX-License-Identifier: BSD-3-Clause
// Where the pages of managed memory lie at the moment.
#pragma once

#include "core/memory/memory_info.hpp"

#include <cstddef>

namespace gpushm {

/** Whether the CPU should copy [address, +length) of managed memory, because its pages are in the
 * page table of the CPU. The CPU reads them where they are, while the driver would migrate them,
 * which is slower (doc/decisions/memory-managed-copies.md). The answer is only a hint: if pages
 * move meanwhile, both ways copy correctly. Looks at the first page and the last one by one system
 * call, or two for long ranges. Thread safe. */
bool resides_on_cpu(const void *address, size_t length);

/** Whether the CPU may touch managed memory while a kernel runs on the device, and the kernel while
 * the CPU does. Thread safe; asks the driver once for each device. */
bool has_concurrent_access(CUdevice device);

/** Whether the CPU copies this managed memory, because it resides there. `info` describes it. */
bool cpu_copies_managed(const MemoryInfo &info, const void *address, size_t length);

/** Whether a GPU copies this memory: device memory always, managed memory unless it resides on the
 * CPU. `info` describes it. */
inline bool gpu_copies(const MemoryInfo &info, const void *address, size_t length) {
    return info.kind == MemoryKind::device ||
           (info.kind == MemoryKind::managed && !cpu_copies_managed(info, address, length));
}

}  // namespace gpushm
