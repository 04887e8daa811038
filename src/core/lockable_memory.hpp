// SPDX-License-Identifier: BSD-3-Clause
// Which host memory of the application we may page-lock.
#pragma once

#include <cstdint>

namespace gpushm {

/** Whether [begin, end) is memory that goes away by munmap(2) only, called with no lock of the C library held: one
 *  mapping, to be read and written, of no device, and neither the main stack nor a heap that malloc() divides. Reads
 *  /proc/self/maps and, up to 64 MB below, the memory of the process; allocates. Where it cannot tell it says no.
 *  Thread safe. */
bool may_be_locked(uintptr_t begin, uintptr_t end);

}  // namespace gpushm
