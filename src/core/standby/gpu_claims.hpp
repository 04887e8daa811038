// SPDX-License-Identifier: BSD-3-Clause
// Which process may run standby kernels on a GPU.
#pragma once

#include "core/base/unique_fd.hpp"

#include <cuda.h>

#include <map>
#include <mutex>

namespace gpushm {

/** The claims of the process. One process at a time has the right to run standby kernels on a GPU:
 * kernels of two processes would take turns by time slices. A claim is a name in the abstract
 * namespace of sockets, which ends with the process. Processes of other network namespaces do not
 * see it. Thread safe. */
class GpuClaims {
public:
    static GpuClaims &instance();

    /** Whether this process has the right now. It keeps it until it ends, or release(). */
    bool claim(CUdevice device);
    void release(CUdevice device);

    /** For ForkSafe: a forked child has no claims. */
    void begin_in_child();

private:
    std::mutex mutex_;
    std::map<CUdevice, UniqueFd> claims_;
};

}  // namespace gpushm
