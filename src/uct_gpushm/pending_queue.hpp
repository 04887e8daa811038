// SPDX-License-Identifier: BSD-3-Clause
// Requests of UCX that wait for resources, in the order in which they came.
#pragma once

#include <uct/api/uct.h>

#include <new>
#include <utility>

namespace gpushm::uct {

/** Uses the room that UCX leaves in each request (uct_pending_req_t::priv) and allocates nothing:
 * UCP ends the process if a request is refused (ucp_request_pending_add,
 * src/ucp/core/ucp_request.c). */
class PendingQueue {
public:
    PendingQueue() = default;
    PendingQueue(PendingQueue &&other) noexcept
        : first_(std::exchange(other.first_, nullptr)),
          last_(std::exchange(other.last_, nullptr)) {}
    PendingQueue &operator=(PendingQueue &&) = delete;

    /** A request that was taken out. `fence`: requests behind it take effect after those before. */
    struct Taken {
        uct_pending_req_t *request;
        bool fence;
    };

    bool empty() const { return first_ == nullptr; }

    void push_back(uct_pending_req_t *request) {
        new (request->priv) Link{nullptr, false};
        (empty() ? first_ : link(last_).next) = request;
        last_ = request;
    }
    void push_front(const Taken &taken) {
        new (taken.request->priv) Link{first_, taken.fence};
        last_ = empty() ? taken.request : last_;
        first_ = taken.request;
    }
    /** The queue must not be empty. */
    Taken pop_front() {
        const Taken taken = {first_, link(first_).fence};
        first_ = link(first_).next;
        return taken;
    }
    /** Adds a fence behind all waiting requests. The queue must not be empty. */
    void fence() { link(last_).fence = true; }

private:
    struct Link {
        uct_pending_req_t *next;
        bool fence;
    };
    static_assert(sizeof(Link) <= UCT_PENDING_REQ_PRIV_LEN &&
                  alignof(Link) <= alignof(uct_pending_req_t));

    static Link &link(uct_pending_req_t *request) {
        return *std::launder(reinterpret_cast<Link *>(request->priv));
    }

    uct_pending_req_t *first_ = nullptr;
    uct_pending_req_t *last_ = nullptr;  // invalid while the queue is empty
};

}  // namespace gpushm::uct
