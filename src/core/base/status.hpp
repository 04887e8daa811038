// SPDX-License-Identifier: BSD-3-Clause
// How operations of the core end. The code that sees a failure logs the line for the user; a Status
// only tells the caller the kind of failure.
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
    canceled,       // the caller has cancelled it
};

}  // namespace gpushm
