// SPDX-License-Identifier: BSD-3-Clause
// Which host memory of the application we may page-lock.
#pragma once

#include <cstdint>

namespace gpushm {

/** Whether [begin, end) is memory whose pages go away by calls of this process only that name its
 * addresses (munmap(2), madvise(2) and their like), made with no lock of the C library held: one
 * private mapping, to be read and written, of no file or device, and neither the main stack nor a
 * heap that malloc() divides. The pages of a file go by ftruncate(2) and fallocate(2) too, of
 * whatever process, also where they are mapped privately. Reads /proc/self/maps and, up to 64 MB
 * below, the memory of the process; allocates. Where it cannot tell it says no. Thread safe. */
bool may_be_locked(uintptr_t begin, uintptr_t end);

}  // namespace gpushm
