// SPDX-License-Identifier: BSD-3-Clause
// Which process may run kernels of gpushm on a GPU for a long time, or for other processes.
#pragma once

#include "core/base/unique_fd.hpp"

#include <cuda.h>

#include <map>
#include <mutex>

namespace gpushm {

/** The claims of the process. One process at a time has the right to run standby kernels on a GPU,
 * and to copy there for another process: kernels of two processes would take turns by time slices.
 * A claim is a name in the abstract namespace of sockets, which ends with the process. Processes of
 * other network namespaces do not see it. Thread safe. */
class GpuClaims {
public:
    static GpuClaims &instance();

    /** Whether this process has the right now. It keeps it until it ends, or leave(). */
    bool claim(CUdevice device);
    /** Leaves the right to other processes for ever. */
    void leave(CUdevice device);
    bool has(CUdevice device);
    bool has_left(CUdevice device);
    /** Whether another process has it. */
    bool is_taken(CUdevice device);

    /** For ForkSafe: a forked child has no claims. */
    void begin_in_child();

private:
    struct Claim {
        UniqueFd name;  // empty: this process does not have the right
        bool is_left = false;
    };
    std::mutex mutex_;
    std::map<CUdevice, Claim> claims_;
};

}  // namespace gpushm
