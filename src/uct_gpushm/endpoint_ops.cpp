// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/endpoint_ops.hpp"

#include "core/base/log.hpp"
#include "uct_gpushm/addresses.hpp"
#include "uct_gpushm/endpoint.hpp"
#include "uct_gpushm/shared_memory_domain.hpp"
#include "uct_gpushm/shared_memory_interface.hpp"
#include "uct_gpushm/status.hpp"
#include "uct_gpushm/ucx_callback.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace gpushm::uct {
namespace {

// UCP_AM_ID_WIREUP (UCX 1.13 to 1.23, src/ucp/core/ucp_types.h). If UCP knows the remote endpoint,
// it probes the peer by such a message instead of ep_check (ucp_ep_is_am_keepalive,
// src/ucp/core/ucp_ep.c). The message alone proves nothing: the mailbox of a dead process takes it.
constexpr uint8_t kWireupMessage = 1;

Endpoint *self(uct_ep_h ep) {
    return reinterpret_cast<Endpoint *>(ep);
}

SharedMemoryInterface *interface_of(const Endpoint *ep) {
    return shared_memory_interface(ep->super.iface);
}

/** Whether an operation that begins now would overtake waiting requests. The request that is being
 * tried may begin one operation. Operations that its completion begins wait like all others. */
bool must_wait(Endpoint *ep) {
    return !ep->pending.empty() && !std::exchange(ep->in_turn, false);
}

// ---------------------------------------------------------------- active messages

/** False, logged, for an id that no interface has. */
bool is_message_id(uint8_t id) {
    const bool exists = id < kActiveMessageIds;
    if (!exists) {
        GPUSHM_LOG(error, "an active message has the id %u, which does not exist: use 0 to %u",
                   static_cast<unsigned>(id), kActiveMessageIds - 1);
    }
    return exists;
}

/** The status of a message for UCX. Logs the length if the core refuses it as too long. */
ucs_status_t report_length(const char *operation, Status status, size_t length, size_t max) {
    if (status == Status::invalid) {
        GPUSHM_LOG(error, "%s of %zu bytes was refused: send at most %zu bytes (uct_iface_attr_t)",
                   operation, length, max);
    }
    return to_ucs(status);
}

bool is_traced(const Endpoint *ep) {
    return __builtin_expect(abi::traces_messages(&interface_of(ep)->super), false);
}

void trace_sent(const Endpoint *ep, uint8_t id, const void *data, size_t length, size_t total) {
    abi::trace_am(&interface_of(ep)->super, UCT_AM_TRACE_TYPE_SEND, id, data, length, total);
}

/** The bytes of a short message, for its line in the trace. */
struct ShortMessage {
    unsigned char bytes[Cell::kInlineBytes];
    size_t length = 0;

    void append(const void *data, size_t count) {
        if (count != 0) {
            memcpy(bytes + length, data, count);
            length += count;
        }
    }
    void trace(const Endpoint *ep, uint8_t id) const { trace_sent(ep, id, bytes, length, length); }
};

size_t total_length(const Piece *pieces, size_t count) {
    return std::accumulate(pieces, pieces + count, size_t{0},
                           [](size_t sum, const Piece &piece) { return sum + piece.length; });
}

ucs_status_t am_short(uct_ep_h handle, uint8_t id, uint64_t header, const void *payload,
                      unsigned length) {
    Endpoint *ep = self(handle);
    if (!is_message_id(id)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    const Status status = ep->connection->am_short(id, header, payload, length);
    if (is_traced(ep) && status == Status::ok) {
        ShortMessage message;
        message.append(&header, sizeof(header));
        message.append(payload, length);
        message.trace(ep, id);
    }
    return status == Status::ok
               ? UCS_OK
               : report_length("am_short", status, length, Cell::kInlineBytes - sizeof(header));
}

/** Fills `pieces`, which has room for kMaxPieces. UCS_OK: the message may be sent. */
ucs_status_t take_pieces(Endpoint *ep, uint8_t id, const uct_iov_t *iov, size_t iovcnt,
                         Piece *pieces) {
    if (!is_message_id(id)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (iovcnt > kMaxPieces) {
        GPUSHM_LOG(error, "an active message of %zu pieces was refused: send at most %zu pieces",
                   iovcnt, kMaxPieces);
        return UCS_ERR_INVALID_PARAM;
    }
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    for (size_t i = 0; i < iovcnt; ++i) {
        pieces[i] = {iov[i].buffer, iov[i].length * iov[i].count};
    }
    return UCS_OK;
}

// Without UCX's own uct_base_ep_am_short_iov (src/uct/base/uct_iface.c), which gathers into a
// buffer and calls am_short: see doc/decisions/uct_gpushm-short-messages.md.
ucs_status_t am_short_iov(uct_ep_h handle, uint8_t id, const uct_iov_t *iov, size_t iovcnt) {
    Endpoint *ep = self(handle);
    Piece pieces[kMaxPieces];
    const ucs_status_t usable = take_pieces(ep, id, iov, iovcnt, pieces);
    if (usable != UCS_OK) {
        return usable;
    }
    const Status status = ep->connection->am_short_pieces(id, pieces, iovcnt);
    if (is_traced(ep) && status == Status::ok) {
        ShortMessage message;
        std::for_each(pieces, pieces + iovcnt,
                      [&](const Piece &piece) { message.append(piece.address, piece.length); });
        message.trace(ep, id);
    }
    return status == Status::ok ? UCS_OK
                                : report_length("am_short_iov", status,
                                                total_length(pieces, iovcnt), Cell::kInlineBytes);
}

/** The user's pack function with what the trace needs. The line is written inside of it: the peer
 * may take the message as soon as it is packed. */
struct TracedPack {
    const Endpoint *ep;
    uint8_t id;
    uct_pack_callback_t pack;
    void *argument;
};

size_t pack_and_trace(void *destination, void *argument) {
    const auto &traced = *static_cast<TracedPack *>(argument);
    const size_t length = traced.pack(destination, traced.argument);
    trace_sent(traced.ep, traced.id, destination, length, length);
    return length;
}

ssize_t am_bcopy(uct_ep_h handle, uint8_t id, uct_pack_callback_t pack, void *argument, unsigned) {
    Endpoint *ep = self(handle);
    if (!is_message_id(id)) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (id == kWireupMessage) {
        ep->connection->check_peer_soon();
    }
    size_t length = 0;
    TracedPack traced = {ep, id, pack, argument};
    const Status status = is_traced(ep)
                              ? ep->connection->am_pack(id, pack_and_trace, &traced, &length)
                              : ep->connection->am_pack(id, pack, argument, &length);
    return status == Status::ok ? static_cast<ssize_t>(length)
                                : static_cast<ssize_t>(to_ucs(status));
}

ucs_status_t am_zcopy(uct_ep_h handle, uint8_t id, const void *header, unsigned header_length,
                      const uct_iov_t *iov, size_t iovcnt, unsigned, uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    Piece pieces[kMaxPieces];
    if (header_length > kMaxHeader) {
        GPUSHM_LOG(error, "am_zcopy with a header of %u bytes was refused: send at most %zu bytes",
                   header_length, kMaxHeader);
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t usable = take_pieces(ep, id, iov, iovcnt, pieces);
    if (usable != UCS_OK) {
        return usable;
    }
    const Status status = ep->connection->am_pieces(id, header, header_length, pieces, iovcnt, ep,
                                                    to_core(completion));
    const size_t length = header_length + total_length(pieces, iovcnt);
    if (is_traced(ep) && (status == Status::ok || status == Status::in_progress)) {
        // The rest may be in GPU memory.
        trace_sent(ep, id, header, header_length, length);
    }
    return report_length("am_zcopy", status, length, kSlotBytes);
}

// ---------------------------------------------------------------- transfers

/** UCS_INPROGRESS: the transfer may start. UCS_OK: its length is 0, and `rkey` may be invalid. */
ucs_status_t check_transfer(Endpoint *ep, const char *operation, const uct_iov_t *iov,
                            size_t iovcnt, uct_rkey_t rkey) {
    if (iovcnt > 1) {
        GPUSHM_LOG(error, "%s of %zu pieces was refused: use one piece", operation, iovcnt);
        return UCS_ERR_INVALID_PARAM;
    }
    const size_t length = iovcnt == 0 ? 0 : iov->length * iov->count;
    if (length != 0 && rkey == UCT_INVALID_RKEY) {
        GPUSHM_LOG(error, "%s of %zu bytes was refused: it has no key of the remote memory",
                   operation, length);
        return UCS_ERR_INVALID_PARAM;
    }
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (is_traced(ep)) {
        abi::trace_transfer(operation, length);
    }
    return length == 0 ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t put_zcopy(uct_ep_h handle, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                       uct_rkey_t rkey, uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    const ucs_status_t status = check_transfer(ep, "put_zcopy", iov, iovcnt, rkey);
    return status != UCS_INPROGRESS
               ? status
               : to_ucs(ep->connection->put(iov->buffer, iov->length * iov->count,
                                            remote_memory(rkey, remote_addr), ep,
                                            to_core(completion)));
}

ucs_status_t get_zcopy(uct_ep_h handle, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                       uct_rkey_t rkey, uct_completion_t *completion) {
    Endpoint *ep = self(handle);
    const ucs_status_t status = check_transfer(ep, "get_zcopy", iov, iovcnt, rkey);
    return status != UCS_INPROGRESS
               ? status
               : to_ucs(ep->connection->get(iov->buffer, iov->length * iov->count,
                                            remote_memory(rkey, remote_addr), ep,
                                            to_core(completion)));
}

// ---------------------------------------------------------------- waiting and order

/** Always takes the request. UCS_ERR_BUSY would make UCX try again at once, and the ring may be
 * full although the mailbox has room. */
ucs_status_t pending_add(uct_ep_h handle, uct_pending_req_t *request, unsigned) {
    Endpoint *ep = self(handle);
    interface_of(ep)->add_waiting(ep);
    ep->pending.push_back(request);
    ep->in_turn = false;
    return UCS_OK;
}

void pending_purge(uct_ep_h handle, uct_pending_purge_callback_t callback, void *argument) {
    PendingQueue purged = std::move(self(handle)->pending);
    while (!purged.empty()) {
        callback(purged.pop_front().request, argument);
    }
}

/** Ends all operations now, as if the peer had died: a forced close must not wait for the peer. */
void cancel_all(Endpoint *ep) {
    std::vector<Completion> ended;
    ep->connection->cancel(ep, &ended);
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
    if (ep->connection->failed()) {
        return to_ucs(Status::peer_failed);
    }
    if (must_wait(ep)) {
        return UCS_ERR_NO_RESOURCE;
    }
    return to_ucs(ep->connection->flush(ep, to_core(completion)));
}

ucs_status_t ep_fence(uct_ep_h handle, unsigned) {
    self(handle)->fence();
    return UCS_OK;
}

ucs_status_t ep_check(uct_ep_h handle, unsigned, uct_completion_t *) {
    self(handle)->connection->check_peer_soon();
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
    Connection *connection = iface->port->connect(address.mailbox, &why);
    if (connection == nullptr) {
        GPUSHM_LOG(error, "cannot connect to process %d: %s", address.mailbox.pid, why);
        return UCS_ERR_UNREACHABLE;
    }
    if (connection->failed()) {  // UCX was told before this endpoint existed
        return UCS_ERR_UNREACHABLE;
    }
    iface->make_room_for_endpoint();
    auto *ep = new Endpoint{};
    ep->super.iface = params->iface;
    ep->connection = connection;
    connection->add_user();
    iface->endpoints.push_back(ep);
    *handle = &ep->super;
    return UCS_OK;
}

void ep_destroy(uct_ep_h handle) {
    Endpoint *ep = self(handle);
    SharedMemoryInterface *iface = interface_of(ep);
    if (ep->destroyed != nullptr) {
        *ep->destroyed = true;
    }
    ep->connection->cancel(ep);
    ep->connection->remove_user();
    iface->remove(ep);
    delete ep;
}

}  // namespace

void set_endpoint_ops(uct_iface_ops_t &ops) {
    ops.ep_am_short = ucx_callback<am_short>;
    ops.ep_am_short_iov = ucx_callback<am_short_iov>;
    ops.ep_am_bcopy = ucx_callback<am_bcopy>;
    ops.ep_am_zcopy = ucx_callback<am_zcopy>;
    ops.ep_put_zcopy = ucx_callback<put_zcopy>;
    ops.ep_get_zcopy = ucx_callback<get_zcopy>;
    ops.ep_pending_add = ucx_callback<pending_add>;
    ops.ep_pending_purge = ucx_callback<pending_purge>;
    ops.ep_flush = ucx_callback<ep_flush>;
    ops.ep_fence = ucx_callback<ep_fence>;
    ops.ep_check = ucx_callback<ep_check>;
    ops.ep_create = ucx_callback<ep_create>;
    ops.ep_destroy = ucx_callback<ep_destroy>;
}

}  // namespace gpushm::uct
