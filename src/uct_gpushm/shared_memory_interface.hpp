// SPDX-License-Identifier: BSD-3-Clause
// The interface that reaches other processes of the node: a port of the core and its endpoints.
#pragma once

#include "core/transport/port.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/endpoint.hpp"

#include <uct/api/uct.h>

#include <memory>
#include <vector>

namespace gpushm::uct {

struct SharedMemoryInterface {
    abi::Iface super;
    /** Null, logged, when the system has no memory or descriptor for it. The interface then reaches
     * no peer, and UCX uses other transports; if it failed to open, the whole worker would fail. */
    std::unique_ptr<Port> port;
    std::vector<Endpoint *> endpoints;
    std::vector<Endpoint *> waiting;  // endpoints with waiting requests, in turn; null: removed

    /** So that neither push_back() of one more endpoint nor add_waiting() allocates. */
    void make_room_for_endpoint();
    void add_waiting(Endpoint *ep);
    void remove(Endpoint *ep);

    /** Tries waiting requests. Returns how many were sent. */
    unsigned dispatch_pending();
    /** Tells UCX of every endpoint of a failed connection. */
    void report_failure(Connection &connection);
};

inline SharedMemoryInterface *shared_memory_interface(uct_iface_h iface) {
    return reinterpret_cast<SharedMemoryInterface *>(iface);
}

}  // namespace gpushm::uct
