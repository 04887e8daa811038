// SPDX-License-Identifier: BSD-3-Clause
// Tagged messages and streams.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

namespace gpushm::ucp_test {
namespace {

// Around the limits of a cell (112 bytes), of a slot (8 KiB and UCP's headers), of ring and chunks.
constexpr const char *kSizes = "0,1,8,100,112,113,4095,8192,8320,8321,65536,600001,4200001";

constexpr ucp_tag_t kFullMask = ~ucp_tag_t{0};

ucs_status_ptr_t send_tagged(const Session &session, const Transfer &transfer) {
    const ucp_request_param_t parameters = plain_request();
    return ucp_tag_send_nbx(session.ep(), transfer.address, transfer.message.size, transfer.n,
                            &parameters);
}

ucs_status_ptr_t receive_tagged(Session &session, void *address, size_t capacity, ucp_tag_t tag) {
    const ucp_request_param_t parameters = plain_request();
    return ucp_tag_recv_nbx(session.worker().get(), address, capacity, tag, kFullMask, &parameters);
}

}  // namespace

void tagged_messages(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_TAG);
    const Progress progress = session.worker().progress_function();
    for_each_transfer(peer, kSizes, [&](const Transfer &transfer) {
        // In turn, the receive is there before the message and the message before the receive.
        const bool expected = transfer.n % 2 == 0;
        ucs_status_ptr_t request = nullptr;
        if (transfer.sending) {
            if (expected) {
                peer.channel.barrier(progress);
                request = send_tagged(session, transfer);
            } else {
                request = send_tagged(session, transfer);
                peer.channel.barrier(progress);
            }
            require(session.worker().wait(request), "send");
        } else {
            if (!expected) {
                peer.channel.barrier(progress);
            }
            request =
                receive_tagged(session, transfer.address, transfer.message.capacity, transfer.n);
            if (expected) {
                peer.channel.barrier(progress);
            }
            require(session.worker().wait(request), "receive");
        }
    });
    peer.channel.barrier(progress);
}

void streams(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_STREAM);
    const Progress progress = session.worker().progress_function();
    for_each_transfer(peer, "1,8,113,8192,65536,600001", [&](const Transfer &transfer) {
        ucp_request_param_t parameters = plain_request();
        if (transfer.sending) {
            require(session.worker().wait(ucp_stream_send_nbx(session.ep(), transfer.address,
                                                              transfer.message.size, &parameters)),
                    "send");
            return;
        }
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = UCP_STREAM_RECV_FLAG_WAITALL;
        size_t length = 0;
        ucs_status_ptr_t request = ucp_stream_recv_nbx(session.ep(), transfer.address,
                                                       transfer.message.size, &length, &parameters);
        require(session.worker().wait(request), "receive");
    });
    peer.channel.barrier(progress);
}

void loopback(Peer &peer) {
    Session session(UCP_FEATURE_TAG);
    const std::vector<MemoryKind> kinds = kinds_of(peer.options, "host");
    size_t n = 0;
    for (MemoryKind source_kind : kinds) {
        for (MemoryKind destination_kind : kinds) {
            for (size_t size : sizes_of(peer.options, kSizes)) {
                set_activity(std::string("loopback ") + to_string(source_kind) + " -> " +
                             to_string(destination_kind) + ", " + std::to_string(size) + " bytes");
                const auto source = make_buffer(source_kind, size + 64);
                const auto destination = make_buffer(destination_kind, size + 64);
                const Message message = nth_message(n, size);
                source->prepare_source(message);
                destination->prepare_destination(message);
                const bool expected = n % 2 == 0;
                ucs_status_ptr_t receive = nullptr;
                const auto post = [&] {
                    receive =
                        receive_tagged(session, destination->address(message), message.capacity, n);
                };
                if (expected) {
                    post();
                }
                const ucp_request_param_t parameters = plain_request();
                ucs_status_ptr_t send = ucp_tag_send_nbx(session.ep(), source->address(message),
                                                         message.size, n, &parameters);
                if (!expected) {
                    session.worker().progress();
                    post();
                }
                require(session.worker().wait(receive), "receive");
                require(session.worker().wait(send), "send");
                check_received(*destination, message);
                ++n;
            }
        }
    }
}

}  // namespace gpushm::ucp_test
