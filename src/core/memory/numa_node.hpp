// SPDX-License-Identifier: BSD-3-Clause
// The NUMA node for memory that a GPU reads and writes.
//
// The driver and a system call tell it, not hwloc: loading a topology takes tens of milliseconds in
// each process on a large node, and an Open MPI may have brought another hwloc into the process.
#pragma once

#include "core/memory/memory_info.hpp"

#include <cstddef>

namespace gpushm {

/** The system chooses: the node of the thread that touches the memory first, unless the policy of
 * the user (numactl(8)) says otherwise. */
constexpr int kAnyNumaNode = -1;

/** The node next to the GPU that has or copies this memory; kAnyNumaNode when the driver does not
 * tell (CUDA before 12.2), or the machine has one node. One driver call. */
int numa_node_of(const MemoryInfo &gpu_side);

/** Makes pages of a mapping that are not there yet come from `node` as long as it has some
 * (mbind(2), MPOL_PREFERRED), for all processes that map the file. A wish: it cannot fail. */
void prefer_numa_node(void *address, size_t length, int node);

}  // namespace gpushm
