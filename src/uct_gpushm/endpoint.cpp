// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/endpoint.hpp"

namespace gpushm::uct {

void Endpoint::fence() {
    if (pending.empty() ||
        in_turn) {  // a fence by the request that is tried does not concern others
        connection->fence();
    } else {
        pending.fence();
    }
}

unsigned Endpoint::dispatch() {
    unsigned count = 0;
    bool gone = false;
    destroyed = &gone;
    while (!pending.empty()) {
        // Taken out first, because its completion may purge the others or close the endpoint.
        const PendingQueue::Taken taken = pending.pop_front();
        in_turn = true;
        const ucs_status_t status = taken.request->func(taken.request);
        if (gone) {
            return count + 1;
        }
        in_turn = false;
        if (status != UCS_OK) {
            pending.push_front(taken);
            break;
        }
        if (taken.fence) {
            connection->fence();
        }
        ++count;
    }
    destroyed = nullptr;
    return count;
}

}  // namespace gpushm::uct
