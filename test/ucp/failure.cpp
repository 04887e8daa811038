// SPDX-License-Identifier: BSD-3-Clause
// A peer that is killed: the survivor is told of it in bounded time and can go on.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <csignal>

namespace gpushm::ucp_test {
namespace {

constexpr double kPatienceSeconds = 20;
constexpr size_t kLargeBytes = size_t{32} << 20;
constexpr size_t kMessages = 4;

void exchange_small_messages(Session &session, int role) {
    const ucp_request_param_t parameters = plain_request();
    int out = role;
    int in = -1;
    ucs_status_ptr_t send = ucp_tag_send_nbx(session.ep(), &out, sizeof(out), 1, &parameters);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(session.worker().get(), &in, sizeof(in), 1,
                                                ~ucp_tag_t{0}, &parameters);
    require(session.worker().wait(send), "send");
    require(session.worker().wait(receive), "receive");
    if (in != 1 - role) {
        fail("expected %d, got %d", 1 - role, in);
    }
}

using Buffers = std::vector<std::unique_ptr<GuardedBuffer>>;

std::vector<ucs_status_ptr_t> start_messages(Session &session, bool send, const Buffers &buffers) {
    const ucp_request_param_t parameters = plain_request();
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < buffers.size(); ++i) {
        void *address = buffers[i]->address(nth_message(0, kLargeBytes));
        requests.push_back(send ? ucp_tag_send_nbx(session.ep(), address, kLargeBytes, 2,
                                                   &parameters)
                                : ucp_tag_recv_nbx(session.worker().get(), address, kLargeBytes, 2,
                                                   ~ucp_tag_t{0}, &parameters));
    }
    return requests;
}

bool ended(ucs_status_ptr_t request) {
    return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
}

/** In the middle of the transfer: part of it has arrived, not all. */
[[noreturn]] void die_on_the_way(Session &session, const std::vector<ucs_status_ptr_t> &requests) {
    constexpr unsigned kBusyPolls = 20;
    for (unsigned busy = 0; busy < kBusyPolls && !ended(requests.back());) {
        busy += session.worker().progress() != 0 ? 1 : 0;
    }
    raise(SIGKILL);
    fail("still alive");
}

void await_error(Session &session) {
    const double deadline = now_seconds() + kPatienceSeconds;
    while (session.endpoint()->error() == UCS_OK) {
        session.worker().progress();
        if (now_seconds() > deadline) {
            fail("not told of the death of the peer in %.0f s", kPatienceSeconds);
        }
    }
}

/** All requests end. A receive that no sender has matched is the user's to cancel. */
void end_requests(Session &session, const std::vector<ucs_status_ptr_t> &requests, bool sending) {
    size_t failures = 0;
    for (ucs_status_ptr_t request : requests) {
        if (!sending && !ended(request)) {
            ucp_request_cancel(session.worker().get(), request);
        }
        failures += session.worker().wait(request) != UCS_OK ? 1 : 0;
    }
    if (failures == 0 && !requests.empty()) {
        fail("all messages succeeded: the peer died too late for this test");
    }
}

void send_to_oneself(Session &session) {
    session.connect(session.worker().address(), UCP_ERR_HANDLING_MODE_PEER);
    const ucp_request_param_t parameters = plain_request();
    char out = 'a';
    char in = 'b';
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(session.worker().get(), &in, 1, 3, ~ucp_tag_t{0}, &parameters);
    require(session.worker().wait(ucp_tag_send_nbx(session.ep(), &out, 1, 3, &parameters)),
            "send to oneself");
    require(session.worker().wait(receive), "receive from oneself");
    if (in != out) {
        fail("wrong data from oneself");
    }
}

}  // namespace

void killed_peer(Peer &peer) {
    const std::string when = peer.options.text("when", "rest");
    const MemoryKind kind = kinds_of(peer.options, "host").front();
    set_activity("peer killed at " + when + ", " + to_string(kind) + " memory");
    Session session(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_PEER);
    exchange_small_messages(session, peer.role);
    Buffers buffers;
    for (size_t i = 0; when != "rest" && i < kMessages; ++i) {
        buffers.push_back(make_buffer(kind, kLargeBytes + 64));
    }
    peer.channel.barrier(session.worker().progress_function());

    const bool sending = (when == "send") == (peer.role == 0);
    const std::vector<ucs_status_ptr_t> requests = start_messages(session, sending, buffers);
    if (peer.role == 1) {
        if (requests.empty()) {
            raise(SIGKILL);
        }
        die_on_the_way(session, requests);
    }
    await_error(session);
    end_requests(session, requests, sending);
    session.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
    session.disconnect();
    send_to_oneself(session);
}

}  // namespace gpushm::ucp_test
