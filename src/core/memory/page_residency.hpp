// SPDX-License-Identifier: BSD-3-Clause
// Where the pages of managed memory lie at the moment.
#pragma once

#include "core/memory/memory_info.hpp"

#include <cstddef>

namespace gpushm {

/** Whether the CPU should copy [address, +length) of managed memory: its pages are in the CPU's
 * page table, so that the CPU reads them where they are, while the driver would migrate them (5.5
 * GB/s instead of 13.5 on an H200). Only a hint for the quicker way, which pages that move
 * meanwhile do not make wrong: both ways copy what is there. Looks at the first page and the last
 * one, by one system call (0.4 to 0.8 us) or, of long ranges, two. Thread safe. */
bool resides_on_cpu(const void *address, size_t length);

/** Whether the CPU may touch managed memory while a kernel runs on the device, and a kernel such
 * memory while the CPU does. Thread safe; asks the driver once for each device. */
bool has_concurrent_access(CUdevice device);

/** Whether a GPU copies this memory, of which `info` is known: device memory always, managed memory
 * unless it resides on the CPU. */
bool gpu_copies(const MemoryInfo &info, const void *address, size_t length);

}  // namespace gpushm
