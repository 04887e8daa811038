// SPDX-License-Identifier: BSD-3-Clause
// The context that the application works in.
#pragma once

#include <cuda.h>

#include <optional>

namespace gpushm {

/** `id`: CudaDriver::context_id(). */
struct ContextInUse {
    CUcontext context;
    unsigned long long id;
};

/** The first primary context that the application was seen to use. A later one takes its place once
 * it has ended. The answer may have ended. Thread safe. */
std::optional<ContextInUse> context_in_use();

/** The application uses this primary context. Thread safe. */
void note_context_in_use(CUcontext context);

}  // namespace gpushm
