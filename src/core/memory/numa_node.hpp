// SPDX-License-Identifier: BSD-3-Clause
// On which NUMA node memory lies that a GPU reads and writes.
//
// By the driver and the system call, not by hwloc: loading a topology takes tens of milliseconds in
// each process on a large node, and an Open MPI that brings another hwloc may be in the process.
#pragma once

#include "core/memory/memory_info.hpp"

#include <cstddef>

namespace gpushm {

/** Where the kernel puts it: on the node of the thread that makes it, unless the user's policy
 * (numactl(8)) says otherwise. */
constexpr int kAnyNumaNode = -1;

/** The node next to the GPU that has or copies this memory; kAnyNumaNode when the driver does not
 * say (CUDA before 12.2, one node only). One driver call. */
int numa_node_of(const MemoryInfo &gpu_side);

/** Pages of a mapping that are not there yet come from `node` as long as it has some (mbind(2),
 * MPOL_PREFERRED), for all processes that map the same file. A wish: it cannot fail. */
void prefer_numa_node(void *address, size_t length, int node);

}  // namespace gpushm
