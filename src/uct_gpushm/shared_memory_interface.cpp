// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/shared_memory_interface.hpp"

#include "core/base/log.hpp"
#include "uct_gpushm/status.hpp"

#include <algorithm>

namespace gpushm::uct {
namespace {

void make_room(std::vector<Endpoint *> &endpoints, size_t count) {
    if (endpoints.capacity() < count) {
        endpoints.reserve(std::max(count, 2 * endpoints.capacity()));
    }
}

}  // namespace

void SharedMemoryInterface::make_room_for_endpoint() {
    make_room(endpoints, endpoints.size() + 1);
    // `waiting` may have each endpoint once, and null pointers that dispatch_pending() drops later.
    make_room(waiting, waiting.size() + endpoints.size() + 1);
}

void SharedMemoryInterface::add_waiting(Endpoint *ep) {
    if (std::find(waiting.begin(), waiting.end(), ep) == waiting.end()) {
        waiting.push_back(ep);
    }
}

void SharedMemoryInterface::remove(Endpoint *ep) {
    endpoints.erase(std::remove(endpoints.begin(), endpoints.end(), ep), endpoints.end());
    // Not erased, because dispatch_pending() may be walking over it.
    std::replace(waiting.begin(), waiting.end(), ep, static_cast<Endpoint *>(nullptr));
}

unsigned SharedMemoryInterface::dispatch_pending() {
    unsigned count = 0;
    for (size_t i = 0; i < waiting.size(); ++i) {
        Endpoint *ep = waiting[i];
        if (ep == nullptr) {
            continue;
        }
        Connection *connection = ep->connection;
        const unsigned sent = ep->dispatch();
        count += sent;
        if (sent == 0 && waiting[i] == ep) {
            connection->check_peer();
            if (waiting[i] == ep && connection->failed()) {
                report_failure(*connection);
            }
        }
    }
    waiting.erase(
        std::remove_if(waiting.begin(), waiting.end(),
                       [](const Endpoint *ep) { return ep == nullptr || ep->pending.empty(); }),
        waiting.end());
    // The next round begins with another endpoint, so that no busy one starves the others.
    if (waiting.size() > 1) {
        std::rotate(waiting.begin(), waiting.begin() + 1, waiting.end());
    }
    return count;
}

void SharedMemoryInterface::report_failure(Connection &connection) {
    const auto must_be_told = [&connection](const Endpoint *ep) {
        return ep->connection == &connection && !ep->failure_reported;
    };
    // Searched from the beginning each time, because UCX may close endpoints when it is told.
    for (auto ep = endpoints.begin(); (ep = std::find_if(endpoints.begin(), endpoints.end(),
                                                         must_be_told)) != endpoints.end();) {
        (*ep)->failure_reported = true;
        GPUSHM_LOG(debug, "telling UCX that process %d is gone", connection.peer().pid);
        abi::symbols().handle_ep_error(&super.super, &(*ep)->super, to_ucs(Status::peer_failed));
    }
}

}  // namespace gpushm::uct
