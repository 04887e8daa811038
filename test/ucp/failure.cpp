// SPDX-License-Identifier: BSD-3-Clause
// A peer that is killed: the survivor is told of it in bounded time and can go on.
#include "check.hpp"
#include "cuda_api.hpp"
#include "session.hpp"
#include "socket_names.hpp"
#include "transfers.hpp"

#include <dirent.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <string>

namespace gpushm::ucp_test {
namespace {

constexpr double kPatienceSeconds = 20;  // for a survivor that is never told
constexpr double kPromptSeconds = 5;     // far more than it takes, for slow machines
constexpr double kGpuSeconds = 1;        // the same, for a GPU that has nothing to do

struct Plan {
    std::string when;
    MemoryKind kind;
    size_t bytes;     // of each message
    size_t messages;  // of those that are under way
    size_t polls;     // of the victim that did something, before it dies
    bool exact;       // --polls was given: it may then die too early or too late to be missed
    size_t warm;      // messages of the same memory before
};

void exchange_small_messages(Session &session, int role) {
    const ucp_request_param_t parameters = plain_request();
    int out = role;
    int in = -1;
    ucs_status_ptr_t send = ucp_tag_send_nbx(session.ep(), &out, sizeof(out), 1, &parameters);
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(session.worker().get(), &in, sizeof(in), 1, ~ucp_tag_t{0}, &parameters);
    require(session.worker().wait(send), "send");
    require(session.worker().wait(receive), "receive");
    if (in != 1 - role) {
        fail("expected %d, got %d", 1 - role, in);
    }
}

using Buffers = std::vector<std::unique_ptr<GuardedBuffer>>;

std::vector<ucs_status_ptr_t> start_messages(Session &session, bool send, const Buffers &buffers,
                                             size_t bytes) {
    const ucp_request_param_t parameters = plain_request();
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < buffers.size(); ++i) {
        void *address = buffers[i]->address(nth_message(0, bytes));
        requests.push_back(send ? ucp_tag_send_nbx(session.ep(), address, bytes, 2, &parameters)
                                : ucp_tag_recv_nbx(session.worker().get(), address, bytes, 2,
                                                   ~ucp_tag_t{0}, &parameters));
    }
    return requests;
}

bool ended(ucs_status_ptr_t request) {
    return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
}

/** The survivor finds the time of the death in the channel. */
[[noreturn]] void die(Peer &peer) {
    peer.channel.send(std::to_string(now_seconds()));
    raise(SIGKILL);
    fail("still alive");
}

/** In the middle of the transfer: part of it has arrived, not all. */
[[noreturn]] void die_on_the_way(Peer &peer, Session &session,
                                 const std::vector<ucs_status_ptr_t> &requests, size_t polls) {
    for (size_t busy = 0; busy < polls && !ended(requests.back());) {
        busy += session.worker().progress() != 0 ? 1 : 0;
    }
    die(peer);
}

void await_error(Peer &peer, Session &session) {
    const double deadline = now_seconds() + kPatienceSeconds;
    while (session.endpoint()->error() == UCS_OK) {
        session.worker().progress();
        if (now_seconds() > deadline) {
            fail("not told of the death of the peer in %.0f s", kPatienceSeconds);
        }
    }
    const double told = now_seconds();
    const double died = std::stod(peer.channel.receive(session.worker().progress_function()));
    printf("told %.2f ms after the death\n", (told - died) * 1e3);
    if (told - died > kPromptSeconds) {
        fail("told of the death of the peer after %.1f s", told - died);
    }
}

/** All requests end. A receive that no sender has matched is the user's to cancel. */
void end_requests(Session &session, const std::vector<ucs_status_ptr_t> &requests, bool sending,
                  bool may_succeed) {
    size_t failures = 0;
    for (ucs_status_ptr_t request : requests) {
        if (!sending && !ended(request)) {
            ucp_request_cancel(session.worker().get(), request);
        }
        failures += session.worker().wait(request) != UCS_OK ? 1 : 0;
    }
    if (failures == 0 && !requests.empty() && !may_succeed) {
        fail("all messages succeeded: the peer died too late for this test");
    }
}

/** On a connection to oneself. */
void send_to_oneself(Session &session) {
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

/** What each open descriptor is, without what a process opens once to know its own memory, and what
 * tells other processes of its GPU. */
std::map<std::string, std::string> open_descriptors() {
    std::map<std::string, std::string> open;
    if (DIR *folder = opendir("/proc/self/fd")) {
        while (const dirent *entry = readdir(folder)) {
            char target[256];
            const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target));
            if (length > 0 && std::stoi(entry->d_name) != dirfd(folder)) {
                const std::string name(target, static_cast<size_t>(length));
                if (name.find("/pagemap") == std::string::npos &&
                    !tells_of_gpu(name_of_socket(std::stoi(entry->d_name)))) {
                    open[entry->d_name] = name;
                }
            }
        }
        closedir(folder);
    }
    return open;
}

/** There and back. */
void exchange_buffers(Session &session, int role, const Buffers &buffers, size_t bytes,
                      size_t count) {
    const ucp_request_param_t parameters = plain_request();
    for (size_t i = 0; i < count; ++i) {
        void *address = buffers[i % buffers.size()]->address(nth_message(0, bytes));
        require(session.worker().wait(
                    role == static_cast<int>(i % 2)
                        ? ucp_tag_send_nbx(session.ep(), address, bytes, 4, &parameters)
                        : ucp_tag_recv_nbx(session.worker().get(), address, bytes, 4, ~ucp_tag_t{0},
                                           &parameters)),
                "send or receive");
    }
}

/** Nothing that was left behind occupies the survivor's GPU. */
void check_gpu_is_free() {
    const double start = now_seconds();
    require(cuda().cuCtxSynchronize_(), "cuCtxSynchronize");
    if (now_seconds() - start > kGpuSeconds) {
        fail("the GPU is occupied after the death of the peer");
    }
}

/** What the process keeps from then on, whoever dies, it has now. */
void use_before(Peer &peer, const Plan &plan) {
    Session session(peer.channel, UCP_FEATURE_TAG);
    Buffers buffers;
    buffers.push_back(make_buffer(plan.kind, plan.bytes + 64));
    exchange_buffers(session, peer.role, buffers, plan.bytes, plan.warm);
    peer.channel.barrier(session.worker().progress_function());
}

/** The session with the victim. The survivor's `other` connection works all the time. */
void survive(Peer &peer, const Plan &plan, Session *other) {
    Session session(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_PEER);
    exchange_small_messages(session, peer.role);
    Buffers buffers;
    for (size_t i = 0; plan.when != "rest" && i < plan.messages; ++i) {
        buffers.push_back(make_buffer(plan.kind, plan.bytes + 64));
    }
    exchange_buffers(session, peer.role, buffers, plan.bytes, buffers.empty() ? 0 : plan.warm);
    peer.channel.barrier(session.worker().progress_function());

    const bool unanswered = plan.when == "unanswered";
    const bool sending = (plan.when == "send" || unanswered) == (peer.role == 0);
    std::vector<ucs_status_ptr_t> requests;
    if (!unanswered || sending) {
        requests = start_messages(session, sending, buffers, plan.bytes);
    }
    if (unanswered) {
        exchange_small_messages(session, peer.role);  // the messages were announced before
    }
    if (peer.role == 1) {
        if (requests.empty()) {
            die(peer);
        }
        die_on_the_way(peer, session, requests, plan.polls);
    }
    send_to_oneself(*other);
    await_error(peer, session);
    send_to_oneself(*other);
    end_requests(session, requests, sending, plan.exact);
    if (plan.kind != MemoryKind::host) {
        check_gpu_is_free();
    }
    session.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
    session.disconnect();
    session.connect(session.worker().address(), UCP_ERR_HANDLING_MODE_PEER);
    send_to_oneself(session);
}

}  // namespace

void killed_peer(Peer &peer) {
    Plan plan = {peer.options.text("when", "rest"),
                 kinds_of(peer.options, "host").front(),
                 peer.options.number("bytes", size_t{32} << 20),
                 peer.options.number("messages", 4),
                 peer.options.number("polls", 5),
                 peer.options.has("polls"),
                 peer.options.number("warm", 0)};
    set_activity("peer killed at " + plan.when + " after " + std::to_string(plan.polls) +
                 " polls, " + to_string(plan.kind) + " memory");
    if (plan.warm != 0) {
        use_before(peer, plan);
    }
    if (peer.role == 1) {
        survive(peer, plan, nullptr);
        return;
    }
    Session other(UCP_FEATURE_TAG);
    send_to_oneself(other);
    if (plan.kind != MemoryKind::host) {
        make_buffer(plan.kind, 64);  // the driver has descriptors of its own
    }
    const auto before = open_descriptors();
    survive(peer, plan, &other);
    auto after = open_descriptors();
    // Mappings of the GPU are given back when it has nothing to do.
    const double until = now_seconds() + 5;
    while (after.size() > before.size() && now_seconds() < until) {
        other.worker().progress();
        after = open_descriptors();
    }
    if (after.size() > before.size()) {
        std::string added;
        for (const auto &[number, target] : after) {
            added += before.count(number) == 0 ? " " + target : "";
        }
        fail("%zu descriptors are left behind:%s", after.size() - before.size(), added.c_str());
    }
    send_to_oneself(other);
}

}  // namespace gpushm::ucp_test
