// SPDX-License-Identifier: BSD-3-Clause
// Loads the kernels of gpushm into contexts at moments at which nobody has to wait for that.
#pragma once

#include <cuda.h>

namespace gpushm {

/** Loads the kernels into a context that was just made. Does nothing before the first
 * preload_kernels_everywhere(), nor in a context that has them. Thread safe. */
void preload_kernels(CUcontext context);

/** Loads the kernels into all primary contexts, except those in which the GPU is at work. For a
 * process that has no peers yet. Ends stream captures of such a context. Thread safe. */
void preload_kernels_everywhere();

/** Retains the primary context of a device for copies of memory that names no context
 * (cuDevicePrimaryCtxRetain, which the caller has to undo). If the application does not use that
 * context, no kernels are loaded into it until the application retains it, too: kernels there would
 * take turns with those of the context that the application uses. Null when the driver refuses.
 * Thread safe. */
CUcontext retain_for_copies(CUdevice device);

/** The primary context of a device was retained. `was_in_use`: it existed before. Ignores
 * retain_for_copies(). Thread safe. */
void note_retained(CUdevice device, CUcontext context, bool was_in_use);

}  // namespace gpushm
