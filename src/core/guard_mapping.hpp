// SPDX-License-Identifier: BSD-3-Clause
// Mappings that keep addresses from being used, and are not the CUDA driver's.
#pragma once

#include "core/memory_map.hpp"

namespace gpushm {

/** How many bytes from its begin on are inaccessible and certainly not GPU memory, which is inaccessible to a CPU as
 *  well: all of a library's gap or of the guard page of a thread's stack, what a heap of malloc() may grow into; 0
 *  where it cannot tell. Thread safe. */
size_t guard_bytes(const MemoryMapping &mapping);

}  // namespace gpushm
