// SPDX-License-Identifier: BSD-3-Clause
// Which context a handle names, and whether it has ended.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpushm {

/** A context that was alive once. A later context may have its handle. One thread at a time. */
class ContextLife {
public:
    enum class State { alive, ended, unknown };

    /** Learns which context has this handle now. False: it has ended, or the driver does not say.
     */
    bool identify(CUcontext handle);
    /** Asks the driver only if a context may have ended since it was asked last. */
    State look(CUcontext handle);

    /** CudaDriver::context_id(). */
    unsigned long long id() const { return id_; }

private:
    unsigned long long id_ = 0;
    uint64_t epoch_ = 0;  // context_epoch() when the context was last seen alive
};

}  // namespace gpushm
