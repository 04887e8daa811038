// SPDX-License-Identifier: BSD-3-Clause
// An endpoint: UCX's handle of one link.
#pragma once

#include "core/link.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <uct/api/uct.h>

#include <deque>

namespace gpushm::uct {

struct Endpoint {
    uct_ep_t super;
    Link *link;  // of the interface's port; several endpoints may share it
    std::deque<uct_pending_req_t *> pending;
    bool dispatching = false;       // requests of `pending` are being tried
    bool failure_reported = false;  // UCX knows that the link failed

    /** Tries waiting requests in order; the number of those that went out. */
    unsigned dispatch();
};

/** Sets all ep_ functions. */
void set_endpoint_ops(uct_iface_ops_t &ops);

}  // namespace gpushm::uct
