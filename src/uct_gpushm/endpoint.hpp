// SPDX-License-Identifier: BSD-3-Clause
// An endpoint: UCX's handle of a connection to one peer.
#pragma once

#include "core/transport/connection.hpp"
#include "uct_gpushm/pending_queue.hpp"

#include <uct/api/uct.h>

namespace gpushm::uct {

struct Endpoint {
    uct_ep_t super;
    Connection *connection;  // of the interface's port; several endpoints may share it
    PendingQueue pending;
    bool in_turn = false;           // the next operation belongs to the request that is being tried
    bool *destroyed = nullptr;      // in dispatch(): set when a callback destroys the endpoint
    bool failure_reported = false;  // UCX knows that the connection failed

    /** Tries the waiting requests in order, until one cannot be sent. Returns how many were sent. A
     * completion may destroy the endpoint meanwhile. */
    unsigned dispatch();
    /** Operations that begin later take effect after all that have begun or wait. */
    void fence();
};

}  // namespace gpushm::uct
