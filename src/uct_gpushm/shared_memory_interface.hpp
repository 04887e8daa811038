// SPDX-License-Identifier: BSD-3-Clause
// The interface that reaches other processes of the node: a port of the core, seen as UCX sees it.
#pragma once

#include "core/transport/port.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <uct/api/uct.h>

#include <memory>
#include <vector>

namespace gpushm::uct {

struct Endpoint;

struct SharedMemoryInterface {
    abi::Iface super;
    /** Null when there was no memory or descriptor for it (logged): the interface then reaches
     * nobody and UCX uses other transports. An interface that fails to open would fail the whole
     * worker. */
    std::unique_ptr<Port> port;
    std::vector<Endpoint *> endpoints;
    std::vector<Endpoint *> waiting;  // with requests that wait for resources; served in turn

    /** Serves requests that wait; the number of those that went out. */
    unsigned dispatch_pending();
    /** Tells UCX of every endpoint of a failed link. */
    void report_failure(Connection &link);
};

inline SharedMemoryInterface *shared_memory_interface(uct_iface_h iface) {
    return reinterpret_cast<SharedMemoryInterface *>(iface);
}

ucs_status_t open_shared_memory_interface(uct_md_h md, uct_worker_h worker,
                                          const uct_iface_params_t *params,
                                          const uct_iface_config_t *config, uct_iface_h *iface);

}  // namespace gpushm::uct
