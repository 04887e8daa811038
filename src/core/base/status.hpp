// SPDX-License-Identifier: BSD-3-Clause
// How operations of the core end. The line for the user is logged where the failure is seen; a
// Status only tells the caller what kind of failure it was.
#pragma once

namespace gpushm {

enum class Status {
    ok,
    in_progress,    // started; its completion will be called
    no_resource,    // nothing happened; try again after progress
    invalid,        // bad argument, or bad data from a peer
    out_of_memory,  // memory or another resource of the system
    gpu_error,      // the CUDA driver refused
    peer_failed,    // the peer process is gone
    canceled,       // nobody waits for it any more
};

}  // namespace gpushm
