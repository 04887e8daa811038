// SPDX-License-Identifier: BSD-3-Clause
// Many threads on a worker, many workers and endpoints in a process.
#include "../mpi/pattern.hpp"
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <algorithm>
#include <mutex>
#include <thread>

namespace gpushm::ucp_test {
namespace {

/** Ping-pong of one thread with the thread of the same number in the other process. */
void thread_ping_pong(Peer &peer, Session &session, size_t thread, MemoryKind kind) {
    static std::mutex content_mutex;  // buffers share scratch memory
    if (kind != MemoryKind::host) {
        cuda_driver().use_device(0);  // contexts are current to a thread
    }
    const std::vector<size_t> sizes = sizes_of(peer.options, "8,200,5000,70000,1");
    const ucp_request_param_t parameters = plain_request();
    std::unique_lock<std::mutex> lock(content_mutex);
    const std::unique_ptr<GuardedBuffer> buffer = make_buffer(kind, 70100);
    lock.unlock();
    const size_t count = peer.options.number("count", 200);
    for (size_t n = 0; n < count; ++n) {
        const Message message = nth_message(n * 64 + thread, sizes[(n / 2) % sizes.size()]);
        const ucp_tag_t tag = n << 8 | thread;
        const bool sending = n % 2 == static_cast<size_t>(peer.role);
        lock.lock();
        sending ? buffer->prepare_source(message) : buffer->prepare_destination(message);
        lock.unlock();
        ucs_status_ptr_t request =
            sending ? ucp_tag_send_nbx(session.ep(), buffer->address(message), message.size, tag,
                                       &parameters)
                    : ucp_tag_recv_nbx(session.worker().get(), buffer->address(message),
                                       message.capacity, tag, ~ucp_tag_t{0}, &parameters);
        require(session.worker().wait(request), sending ? "send" : "receive");
        if (!sending) {
            lock.lock();
            check_received(*buffer, message);
            lock.unlock();
        }
    }
}

}  // namespace

void threads(Peer &peer) {
    set_activity("threads");
    Session session(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_NONE, true);
    if (session.worker().thread_mode() != UCS_THREAD_MODE_MULTI) {
        skip("this UCX was built without --enable-mt");
    }
    const std::vector<MemoryKind> kinds = kinds_of(peer.options, "host");
    std::vector<std::thread> all;
    for (size_t t = 0; t < peer.options.number("threads", 4); ++t) {
        all.emplace_back([&peer, &session, &kinds, t] {
            thread_ping_pong(peer, session, t, kinds[t % kinds.size()]);
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    peer.channel.barrier(session.worker().progress_function());
}

void many_endpoints(Peer &peer) {
    set_activity("many endpoints");
    const size_t count = peer.options.number("workers", 8);
    const Context context({UCP_FEATURE_TAG, false});
    std::vector<std::unique_ptr<Worker>> workers;
    const Progress progress = [&workers] {
        for (const std::unique_ptr<Worker> &worker : workers) {
            worker->progress();
        }
    };
    for (size_t i = 0; i < count; ++i) {
        workers.push_back(std::make_unique<Worker>(context));
    }
    std::vector<std::string> addresses;
    for (size_t i = 0; i < count; ++i) {
        addresses.push_back(peer.channel.exchange(workers[i]->address(), progress));
    }
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    for (size_t i = 0; i < count * count; ++i) {
        endpoints.push_back(std::make_unique<Endpoint>(*workers[i / count], addresses[i % count]));
    }

    // Endpoint `i` of the sender goes from its worker i / count to i % count of the other process.
    constexpr size_t kBytes = 20000;
    const ucp_request_param_t parameters = plain_request();
    std::vector<std::vector<unsigned char>> sent(count * count);
    std::vector<std::vector<unsigned char>> received(count * count);
    std::vector<ucs_status_ptr_t> requests;
    const auto content = [](int sender, size_t i) {
        std::vector<unsigned char> bytes(kBytes);
        mpi_test::fill_pattern(bytes.data(), kBytes, 2 * i + static_cast<size_t>(sender));
        return bytes;
    };
    for (size_t i = 0; i < count * count; ++i) {
        sent[i] = content(peer.role, i);
        received[i].resize(kBytes);
        requests.push_back(ucp_tag_recv_nbx(workers[i % count]->get(), received[i].data(), kBytes,
                                            i, ~ucp_tag_t{0}, &parameters));
        requests.push_back(
            ucp_tag_send_nbx(endpoints[i]->get(), sent[i].data(), kBytes, i, &parameters));
    }
    const auto under_way = [](ucs_status_ptr_t request) {
        return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
    };
    while (std::any_of(requests.begin(), requests.end(), under_way)) {
        progress();
    }
    for (ucs_status_ptr_t request : requests) {
        require(workers[0]->wait(request), "send or receive");
    }
    for (size_t i = 0; i < count * count; ++i) {
        if (received[i] != content(1 - peer.role, i)) {
            fail("wrong data from endpoint %zu", i);
        }
    }
    peer.channel.barrier(progress);
    // Closing needs the other workers too.
    for (size_t i = 0; i < endpoints.size(); ++i) {
        ucp_request_param_t close = {};
        ucs_status_ptr_t request = ucp_ep_close_nbx(endpoints[i]->release(), &close);
        while (under_way(request)) {
            progress();
        }
        require(workers[0]->wait(request), "close");
    }
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
