// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/endpoint.hpp"

#include "core/log.hpp"
#include "uct_gpushm/addresses.hpp"
#include "uct_gpushm/domains.hpp"
#include "uct_gpushm/shared_memory_interface.hpp"
#include "uct_gpushm/status.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpushm::uct {
namespace {

// UCP_AM_ID_WIREUP (src/ucp/core/ucp_types.h, 1.13 to 1.23). Where UCP knows the remote endpoint it
// probes the peer by such a message instead of ep_check (ucp_ep_is_am_keepalive, src/ucp/core/ucp_ep.c),
// and the mailbox of a dead process takes it.
constexpr uint8_t kWireupMessage = 1;

Endpoint *self(uct_ep_h ep) { return reinterpret_cast<Endpoint *>(ep); }

SharedMemoryInterface *interface_of(const Endpoint *ep) {
    return shared_memory_interface(ep->super.iface);
}

/** Whether an operation that begins now would overtake requests that wait. The one whose turn it is may do so, once: what
 *  its completion begins is no part of it, and must not pass what that has begun before (pending_add). */
bool must_wait(Endpoint *ep) { return !ep->pending.empty() && !std::exchange(ep->in_turn, false); }

// ---------------------------------------------------------------- active messages

ucs_status_t am_short(uct_ep_h handle, uint8_t id, uint64_t header, const void *payload,
                      unsigned length) {
    Endpoint *ep = self(handle);
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return to_ucs(ep->link->am_short(id, header, payload, length));
}

/** UCS_OK: the message may be sent, and its pieces are in `pieces`, which has kMaxPieces. */
ucs_status_t take_pieces(Endpoint *ep, const uct_iov_t *iov, size_t iovcnt, Piece *pieces) {
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (iovcnt > kMaxPieces) {
        return UCS_ERR_INVALID_PARAM;
    }
    for (size_t i = 0; i < iovcnt; ++i) {
        pieces[i] = {iov[i].buffer, iov[i].length * iov[i].count};
    }
    return UCS_OK;
}

// Not UCX's own (uct_base_ep_am_short_iov, src/uct/base/uct_iface.c): it gathers into a buffer and
// calls am_short, which costs a seventh of the rate of small active messages.
ucs_status_t am_short_iov(uct_ep_h handle, uint8_t id, const uct_iov_t *iov, size_t iovcnt) {
    Endpoint *ep = self(handle);
    Piece pieces[kMaxPieces];
    const ucs_status_t status = take_pieces(ep, iov, iovcnt, pieces);
    return status == UCS_OK ? to_ucs(ep->link->am_short_pieces(id, pieces, iovcnt)) : status;
}

ssize_t am_bcopy(uct_ep_h handle, uint8_t id, uct_pack_callback_t pack, void *argument, unsigned) {
    Endpoint *ep = self(handle);
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (id == kWireupMessage) {
        ep->link->check_peer_soon();
    }
    size_t length = 0;
    const Status status = ep->link->am_pack(id, pack, argument, &length);
    return status == Status::ok ? static_cast<ssize_t>(length)
                                : static_cast<ssize_t>(to_ucs(status));
}

ucs_status_t am_zcopy(uct_ep_h handle, uint8_t id, const void *header, unsigned header_length,
                      const uct_iov_t *iov, size_t iovcnt, unsigned,
                      uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    Piece pieces[kMaxPieces];
    const ucs_status_t status = take_pieces(ep, iov, iovcnt, pieces);
    return status == UCS_OK ? to_ucs(ep->link->am_pieces(id, header, header_length, pieces, iovcnt,
                                                         ep, to_core(completion)))
                            : status;
}

// ---------------------------------------------------------------- transfers

ucs_status_t put_zcopy(uct_ep_h handle, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                       uct_rkey_t rkey, uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return iovcnt == 0 ? UCS_OK
                       : to_ucs(ep->link->put(iov->buffer, iov->length * iov->count,
                                              remote_memory(rkey, remote_addr), ep,
                                              to_core(completion)));
}

ucs_status_t get_zcopy(uct_ep_h handle, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                       uct_rkey_t rkey, uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return iovcnt == 0 ? UCS_OK
                       : to_ucs(ep->link->get(iov->buffer, iov->length * iov->count,
                                              remote_memory(rkey, remote_addr), ep,
                                              to_core(completion)));
}

// ---------------------------------------------------------------- waiting and order

/** Always takes the request. UCX would try again at once if it were told that there is room, and the
 *  ring may be full where the mailbox is not. */
ucs_status_t pending_add(uct_ep_h handle, uct_pending_req_t *request, unsigned) {
    Endpoint *ep = self(handle);
    std::vector<Endpoint *> &waiting = interface_of(ep)->waiting;
    if (std::find(waiting.begin(), waiting.end(), ep) == waiting.end()) {
        waiting.push_back(ep);
    }
    ep->pending.push_back(request);
    ep->in_turn = false;
    return UCS_OK;
}

void pending_purge(uct_ep_h handle, uct_pending_purge_callback_t callback, void *argument) {
    Endpoint *ep = self(handle);
    std::deque<uct_pending_req_t *> purged;
    purged.swap(ep->pending);
    for (uct_pending_req_t *request : purged) {
        if (request != kFence) {
            callback(request, argument);
        }
    }
}

/** What is under way ends now, as if the peer had gone: the user of a forced close waits for nobody. */
void cancel_all(Endpoint *ep) {
    std::vector<Completion> ended;
    ep->link->cancel(ep, &ended);
    for (const Completion &completion : ended) {  // one of them may destroy `ep`
        completion.function(completion.argument, Status::canceled);
    }
}

ucs_status_t ep_flush(uct_ep_h handle, unsigned flags, uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    if ((flags & UCT_FLUSH_FLAG_CANCEL) != 0) {
        cancel_all(ep);
        return UCS_OK;
    }
    if (ep->link->failed()) {
        return to_ucs(Status::peer_failed);
    }
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return to_ucs(ep->link->flush(ep, to_core(completion)));
}

ucs_status_t ep_fence(uct_ep_h handle, unsigned) {
    self(handle)->fence();
    return UCS_OK;
}

ucs_status_t ep_check(uct_ep_h handle, unsigned, uct_completion_t *) {
    self(handle)->link->check_peer_soon();
    return UCS_OK;
}

// ---------------------------------------------------------------- life

ucs_status_t ep_create(const uct_ep_params_t *params, uct_ep_h *handle) {
    SharedMemoryInterface *iface = shared_memory_interface(params->iface);
    InterfaceAddress address;
    if (iface->port == nullptr || params->iface_addr == nullptr ||
        !read_interface_address(InterfaceKind::shared_memory, params->iface_addr, 0, &address)) {
        return UCS_ERR_UNREACHABLE;
    }
    const char *why = "";
    Link *link = iface->port->link(address.mailbox, &why);
    if (link == nullptr) {
        GPUSHM_LOG(error, "cannot connect to process %d: %s", address.mailbox.pid, why);
        return UCS_ERR_UNREACHABLE;
    }
    if (link->failed()) {  // another endpoint holds it still; of this one nobody would be told
        return UCS_ERR_UNREACHABLE;
    }
    auto *ep = new Endpoint{};
    ep->super.iface = params->iface;
    ep->link = link;
    link->add_user();
    iface->endpoints.push_back(ep);
    *handle = &ep->super;
    return UCS_OK;
}

void remove(std::vector<Endpoint *> &endpoints, Endpoint *ep) {
    endpoints.erase(std::remove(endpoints.begin(), endpoints.end(), ep), endpoints.end());
}

void ep_destroy(uct_ep_h handle) {
    Endpoint *ep = self(handle);
    SharedMemoryInterface *iface = interface_of(ep);
    if (ep->destroyed != nullptr) {
        *ep->destroyed = true;
    }
    ep->link->cancel(ep);
    ep->link->remove_user();
    remove(iface->endpoints, ep);
    // dispatch_pending() may be walking over it: emptied here, dropped there.
    std::replace(iface->waiting.begin(), iface->waiting.end(), ep,
                 static_cast<Endpoint *>(nullptr));
    delete ep;
}

}  // namespace

void Endpoint::fence() {
    if (pending.empty() || in_turn) {  // of a request's own fence the others know nothing
        link->fence();
    } else {
        pending.push_back(kFence);
    }
}

unsigned Endpoint::dispatch() {
    unsigned count = 0;
    bool gone = false;
    destroyed = &gone;
    while (!pending.empty()) {
        // Taken out before: what it completes may purge the others, or close the endpoint.
        uct_pending_req_t *request = pending.front();
        pending.pop_front();
        if (request == kFence) {
            link->fence();
            continue;
        }
        in_turn = true;
        const ucs_status_t status = request->func(request);
        if (gone) {
            return count + 1;
        }
        in_turn = false;
        if (status != UCS_OK) {
            pending.push_front(request);
            break;
        }
        ++count;
    }
    destroyed = nullptr;
    return count;
}

void set_endpoint_ops(uct_iface_ops_t &ops) {
    ops.ep_am_short = am_short;
    ops.ep_am_short_iov = am_short_iov;
    ops.ep_am_bcopy = am_bcopy;
    ops.ep_am_zcopy = am_zcopy;
    ops.ep_put_zcopy = put_zcopy;
    ops.ep_get_zcopy = get_zcopy;
    ops.ep_pending_add = pending_add;
    ops.ep_pending_purge = pending_purge;
    ops.ep_flush = ep_flush;
    ops.ep_fence = ep_fence;
    ops.ep_check = ep_check;
    ops.ep_create = ep_create;
    ops.ep_destroy = ep_destroy;
}

}  // namespace gpushm::uct
