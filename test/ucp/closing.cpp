// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are closed while messages are under way.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <csignal>
#include <unistd.h>

namespace gpushm::ucp_test {
namespace {

// More than a mailbox holds, so that some wait for room.
constexpr size_t kMessages = 600;

size_t eager_size(size_t n) {
    static constexpr size_t kSizes[] = {8, 100, 3000, 8000, 0};
    return kSizes[n % 5];
}

void check_exchange(Peer &peer, Session &session) {
    const ucp_request_param_t parameters = plain_request();
    int out = peer.role + 10;
    int in = -1;
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(session.worker().get(), &in, sizeof(in), 9, ~ucp_tag_t{0}, &parameters);
    require(
        session.worker().wait(ucp_tag_send_nbx(session.ep(), &out, sizeof(out), 9, &parameters)),
        "send");
    require(session.worker().wait(receive), "receive");
    if (in != 11 - peer.role) {
        fail("expected %d, got %d", 11 - peer.role, in);
    }
    peer.channel.barrier(session.worker().progress_function());
}

void progress_for(double seconds, const Progress &progress) {
    for (const double end = now_seconds() + seconds; now_seconds() < end;) {
        progress();
    }
}

}  // namespace

void close_with_flush(Peer &peer) {
    set_activity("close with flush");
    Session session(peer.channel, UCP_FEATURE_TAG);
    const Progress progress = session.worker().progress_function();
    const MemoryKind kind = kinds_of(peer.options, "host").front();
    const ucp_request_param_t parameters = plain_request();
    std::vector<std::unique_ptr<GuardedBuffer>> buffers;
    std::vector<ucs_status_ptr_t> requests;
    for (size_t n = 0; n < 50; ++n) {  // each is sent several times
        buffers.push_back(make_buffer(kind, 8192));
    }
    if (peer.role == 0) {
        for (size_t n = 0; n < buffers.size(); ++n) {
            buffers[n]->prepare_source(nth_message(n, eager_size(n)));
        }
        for (size_t n = 0; n < kMessages; ++n) {
            const Message message = nth_message(n % buffers.size(), eager_size(n));
            requests.push_back(ucp_tag_send_nbx(session.ep(),
                                                buffers[n % buffers.size()]->address(message),
                                                message.size, n, &parameters));
        }
        require(session.endpoint()->close(0), "close");
        session.disconnect();
        for (ucs_status_ptr_t request : requests) {
            require(session.worker().wait(request), "send");
        }
    } else {
        for (size_t n = 0; n < kMessages; ++n) {
            const Message message = nth_message(n % buffers.size(), eager_size(n));
            GuardedBuffer &buffer = *buffers[n % buffers.size()];
            buffer.prepare_destination(message);
            require(session.worker().wait(
                        ucp_tag_recv_nbx(session.worker().get(), buffer.address(message),
                                         message.capacity, n, ~ucp_tag_t{0}, &parameters)),
                    "receive");
            check_received(buffer, message);
        }
    }
    peer.channel.barrier(progress);
}

void close_by_force(Peer &peer) {
    set_activity("close by force");
    constexpr size_t kBytes = size_t{1} << 20;
    const MemoryKind kind = kinds_of(peer.options, "host").front();
    const ucp_request_param_t parameters = plain_request();
    {
        Session session(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_PEER);
        const Progress progress = session.worker().progress_function();
        check_exchange(peer, session);
        std::vector<std::unique_ptr<GuardedBuffer>> buffers;
        std::vector<ucs_status_ptr_t> requests;
        for (size_t n = 0; n < 16; ++n) {
            buffers.push_back(make_buffer(kind, kBytes));
            void *address = buffers.back()->address(nth_message(0, kBytes));
            requests.push_back(peer.role == 0
                                   ? ucp_tag_send_nbx(session.ep(), address, kBytes, n, &parameters)
                                   : ucp_tag_recv_nbx(session.worker().get(), address, kBytes, n,
                                                      ~ucp_tag_t{0}, &parameters));
        }
        if (peer.role == 0) {
            for (unsigned i = 0; i < 100; ++i) {
                progress();
            }
            session.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
            session.disconnect();
        }
        peer.channel.barrier(progress);
        for (ucs_status_ptr_t request : requests) {
            if (peer.role == 1 && UCS_PTR_IS_PTR(request) &&
                ucp_request_check_status(request) == UCS_INPROGRESS) {
                ucp_request_cancel(session.worker().get(), request);
            }
        }
        if (peer.role == 1) {
            session.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
            session.disconnect();
        }
        for (ucs_status_ptr_t request : requests) {
            session.worker().wait(request);
        }
        peer.channel.barrier(progress);
    }
    set_activity("connection after a close by force");
    Session again(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_PEER);
    check_exchange(peer, again);
}

/** The sender is stopped (a debugger, a long computation) when the receiver gives up. */
void close_beside_stopped(Peer &peer) {
    set_activity("close by force, the peer is stopped");
    constexpr size_t kBytes = size_t{8} << 20;
    constexpr double kPatience = 10;  // s
    const MemoryKind kind = kinds_of(peer.options, "host").front();
    const ucp_request_param_t parameters = plain_request();
    Session session(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_PEER);
    const Progress progress = session.worker().progress_function();
    check_exchange(peer, session);
    const std::unique_ptr<GuardedBuffer> buffer = make_buffer(kind, kBytes);
    void *address = buffer->address(nth_message(0, kBytes));
    const auto pid =
        static_cast<pid_t>(std::stoi(peer.channel.exchange(std::to_string(getpid()), progress)));
    ucs_status_ptr_t request = nullptr;
    if (peer.role == 0) {
        request = ucp_tag_send_nbx(session.ep(), address, kBytes, 1, &parameters);
        progress_for(0.2, progress);
        raise(SIGSTOP);
    } else {
        while (!is_stopped(pid)) {
            progress();
        }
        const double begin = now_seconds();
        request = ucp_tag_recv_nbx(session.worker().get(), address, kBytes, 1, ~ucp_tag_t{0},
                                   &parameters);
        progress_for(0.1, progress);  // it asks for the bytes
        session.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
        while (ucp_request_check_status(request) == UCS_INPROGRESS &&
               now_seconds() < begin + kPatience) {
            progress();
        }
        const bool ended = ucp_request_check_status(request) != UCS_INPROGRESS;
        kill(pid, SIGCONT);
        if (!ended) {
            fail("the receive waits for a peer of an endpoint that was closed by force");
        }
    }
    if (peer.role == 0) {
        session.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
    }
    session.disconnect();
    session.worker().wait(request);
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
