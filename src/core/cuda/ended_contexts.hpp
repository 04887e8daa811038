// SPDX-License-Identifier: BSD-3-Clause
// Counts contexts that have ended, for drivers that do not number contexts (before CUDA 12.0).
#pragma once

#include <cuda.h>

namespace gpushm {

/** How many contexts with this handle have ended, by note_end_of_context(). Thread safe. */
unsigned long long count_ended(CUcontext handle);

/** The context has ended; a later one may have its handle. Thread safe; std::bad_alloc: nothing is
 * noted. */
void note_end_of_context(CUcontext handle);

}  // namespace gpushm
