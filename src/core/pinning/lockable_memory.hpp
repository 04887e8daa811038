// SPDX-License-Identifier: BSD-3-Clause
// Which host memory of the application gpushm may page-lock.
#pragma once

#include <cstdint>

namespace gpushm {

/** Whether the pages of [begin, end) go away only by calls of this process that name its addresses
 * (munmap(2), madvise(2) and the like) and that are made without a lock of the C library. It must
 * be one private mapping, readable and writable, of no file or device, and neither the main stack
 * nor a heap of malloc(). Pages of a file also go away by ftruncate(2) and fallocate(2), of any
 * process, also where they are mapped privately.
 *
 * Reads /proc/self/maps and, up to 64 MB below `begin`, the memory of the process; allocates. False
 * where it cannot tell. Thread safe. */
bool may_be_locked(uintptr_t begin, uintptr_t end);

}  // namespace gpushm
