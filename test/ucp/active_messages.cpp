// SPDX-License-Identifier: BSD-3-Clause
// UCP active messages: with a header, eager and by rendezvous.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <cstring>

namespace gpushm::ucp_test {
namespace {

constexpr unsigned kAmId = 7;

/** What the handler needs of the message that is awaited. */
struct Awaited {
    Session &session;
    const Transfer *transfer = nullptr;
    bool arrived = false;
    ucs_status_ptr_t fetching = nullptr;  // the data of a rendezvous
};

void store_eager(const Transfer &transfer, const void *data, size_t length) {
    if (length == 0) {
        return;
    }
    if (transfer.buffer.kind() == MemoryKind::device) {
        cuda_driver().write(transfer.address, data, length);
    } else {
        std::memcpy(transfer.address, data, length);
    }
}

ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data,
                        size_t length, const ucp_am_recv_param_t *info) {
    auto &awaited = *static_cast<Awaited *>(argument);
    const Transfer &transfer = *awaited.transfer;
    size_t n = 0;
    if (header_length != sizeof(n)) {
        fail("a header of %zu bytes", header_length);
    }
    std::memcpy(&n, header, sizeof(n));
    if (n != transfer.n || length != transfer.message.size) {
        fail("message %zu of %zu bytes arrived", n, length);
    }
    awaited.arrived = true;
    if ((info->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        store_eager(transfer, data, length);
        return UCS_OK;
    }
    const ucp_request_param_t parameters = plain_request();
    awaited.fetching = ucp_am_recv_data_nbx(awaited.session.worker().get(), data, transfer.address,
                                            length, &parameters);
    if (UCS_PTR_IS_ERR(awaited.fetching)) {
        require(UCS_PTR_STATUS(awaited.fetching), "ucp_am_recv_data_nbx");
    }
    const bool ended =
        awaited.fetching == nullptr || ucp_request_check_status(awaited.fetching) != UCS_INPROGRESS;
    if (ended && length != 0) {
        fail("the receive of message %zu ended within the call that posted it", n);
    }
    return awaited.fetching != nullptr ? UCS_INPROGRESS : UCS_OK;
}

void set_handler(Session &session, Awaited &awaited) {
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kAmId;
    handler.cb = on_message;
    handler.arg = &awaited;
    require(ucp_worker_set_am_recv_handler(session.worker().get(), &handler),
            "ucp_worker_set_am_recv_handler");
}

}  // namespace

void active_messages(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_AM);
    const Progress progress = session.worker().progress_function();
    Awaited awaited{session};
    set_handler(session, awaited);
    for_each_transfer(
        peer, "0,1,8,100,4095,8192,40000,65536,600001,4200001", [&](const Transfer &transfer) {
            awaited.transfer = &transfer;
            awaited.arrived = false;
            awaited.fetching = nullptr;
            peer.channel.barrier(progress);
            if (transfer.sending) {
                const ucp_request_param_t parameters = plain_request();
                require(session.worker().wait(ucp_am_send_nbx(session.ep(), kAmId, &transfer.n,
                                                              sizeof(transfer.n), transfer.address,
                                                              transfer.message.size, &parameters)),
                        "send");
                return;
            }
            while (!awaited.arrived) {
                progress();
            }
            require(session.worker().wait(awaited.fetching), "receive");
        });
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
