// SPDX-License-Identifier: BSD-3-Clause
// Loads our kernels into contexts at moments when that holds up nobody.
#pragma once

#include <cuda.h>

#include <optional>

namespace gpushm {

/** The first primary context that the application was seen to use, of those that have not ended
 * when another one is seen; `id`: CudaDriver::context_id(). It may have ended. */
struct ContextInUse {
    CUcontext context;
    unsigned long long id;
};
std::optional<ContextInUse> context_in_use();
/** From now on, if there was none before that is alive. Thread safe, as that. */
void note_context_in_use(CUcontext context);

/** For a context that was just made. Does nothing before the first prepare_contexts(), nor when the
 * context was prepared before. Thread safe. */
void prepare_context(CUcontext context);

/** Retains the primary context of a device for copies of memory that names no context
 * (cuDevicePrimaryCtxRetain, which the caller has to undo). Where the application has no such
 * context in use, kernels of ours in it would take turns with those of the context that the
 * application does use: it is prepared only when the application retains it, too. Null when the
 * driver refuses. Thread safe. */
CUcontext retain_for_copies(CUdevice device);

/** Somebody has retained the primary context of a device, which was not in use before, or was.
 * Thread safe. */
void note_retained(CUdevice device, CUcontext context, bool was_in_use);

/** For all primary contexts that there are, but for those in which the GPU is at work; for a
 * process that has no peers yet. Ends stream captures of such a context. Thread safe. */
void prepare_contexts();

}  // namespace gpushm
