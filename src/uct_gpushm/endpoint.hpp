// SPDX-License-Identifier: BSD-3-Clause
// An endpoint: UCX's handle of one link.
#pragma once

#include "core/transport/connection.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/pending_queue.hpp"

#include <uct/api/uct.h>

namespace gpushm::uct {

constexpr size_t kMaxHeader = 1024;  // of a zero-copy active message

struct Endpoint {
    uct_ep_t super;
    Connection *link;  // of the interface's port; several endpoints may share it
    PendingQueue pending;
    bool in_turn = false;           // the next operation is that of the request that is being tried
    bool *destroyed = nullptr;      // in dispatch(): set when a callback destroys the endpoint
    bool failure_reported = false;  // UCX knows that the link failed

    /** Tries waiting requests in order; the number of those that went out. A completion that it
     * calls may destroy the endpoint. */
    unsigned dispatch();
    /** What is sent later takes effect after all that was sent or waits. */
    void fence();
};

/** Sets all ep_ functions. */
void set_endpoint_ops(uct_iface_ops_t &ops);

}  // namespace gpushm::uct
