// SPDX-License-Identifier: BSD-3-Clause
// Processes that sleep in epoll_wait until UCX's descriptor wakes them.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

namespace gpushm::ucp_test {
namespace {

constexpr int kLostWakeUpMs = 20000;

class Sleeper {
public:
    explicit Sleeper(const Worker &worker) : worker_(worker), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        int fd = -1;
        require(ucp_worker_get_efd(worker.get(), &fd), "ucp_worker_get_efd");
        epoll_event event = {};
        event.events = EPOLLIN;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
            fail("epoll_ctl");
        }
    }
    ~Sleeper() { close(epoll_); }
    Sleeper(const Sleeper &) = delete;
    Sleeper &operator=(const Sleeper &) = delete;

    /** Waits for a request as the manual of ucp_worker_arm says. */
    void wait(ucs_status_ptr_t request) {
        if (!UCS_PTR_IS_PTR(request)) {
            require(UCS_PTR_STATUS(request), "request");
            return;
        }
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            if (worker_.progress() == 0) {
                sleep_until_event();
            }
        }
        require(ucp_request_check_status(request), "request");
        ucp_request_free(request);
    }

    size_t sleeps() const { return sleeps_; }

private:
    void sleep_until_event() {
        const ucs_status_t status = ucp_worker_arm(worker_.get());
        if (status == UCS_ERR_BUSY) {
            return;
        }
        require(status, "ucp_worker_arm");
        epoll_event event;
        const int count = epoll_wait(epoll_, &event, 1, kLostWakeUpMs);
        if (count == 0) {
            fail("not woken for %d ms while a message was on its way", kLostWakeUpMs);
        }
        ++sleeps_;
    }

    const Worker &worker_;
    int epoll_;
    size_t sleeps_ = 0;
};

double cpu_seconds() {
    timespec used = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/** Process 0 sends after a while; process 1 sleeps and must use no time. */
void long_sleep(Peer &peer, Session &session, Sleeper &sleeper) {
    constexpr double kSleepSeconds = 1;
    constexpr double kAllowedSeconds = 0.05;
    char byte = 'x';
    const ucp_request_param_t parameters = plain_request();
    peer.channel.barrier(session.worker().progress_function());
    if (peer.role == 0) {
        usleep(static_cast<useconds_t>(kSleepSeconds * 1e6));
        sleeper.wait(ucp_tag_send_nbx(session.ep(), &byte, 1, 1, &parameters));
        return;
    }
    const double before = cpu_seconds();
    sleeper.wait(ucp_tag_recv_nbx(session.worker().get(), &byte, 1, 1, ~ucp_tag_t{0}, &parameters));
    const double used = cpu_seconds() - before;
    if (used > kAllowedSeconds) {
        fail("%.3f s of CPU time used in a sleep of %.1f s", used, kSleepSeconds);
    }
}

}  // namespace

void sleeping_ping_pong(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP);
    Sleeper sleeper(session.worker());
    const std::vector<size_t> sizes = sizes_of(peer.options, "1,64,4000,0,9000,8,70000,112,300001");
    const std::vector<MemoryKind> kinds = kinds_of(peer.options, "host");
    std::vector<std::unique_ptr<GuardedBuffer>> buffers;
    for (MemoryKind kind : kinds) {
        buffers.push_back(make_buffer(kind, 300100));
    }
    const ucp_request_param_t parameters = plain_request();
    const size_t count = peer.options.number("count", 3000);
    for (size_t n = 0; n < count; ++n) {
        set_activity("sleeping ping-pong, message " + std::to_string(n));
        GuardedBuffer &buffer = *buffers[(n / 2) % buffers.size()];
        const Message message = nth_message(n, sizes[(n / 3) % sizes.size()]);
        if (static_cast<int>(n % 2) == peer.role) {
            buffer.prepare_source(message);
            sleeper.wait(ucp_tag_send_nbx(session.ep(), buffer.address(message), message.size, n,
                                          &parameters));
        } else {
            buffer.prepare_destination(message);
            sleeper.wait(ucp_tag_recv_nbx(session.worker().get(), buffer.address(message),
                                          message.capacity, n, ~ucp_tag_t{0}, &parameters));
            check_received(buffer, message);
        }
    }
    if (sleeper.sleeps() < count / 100) {  // a busy machine lets nobody fall asleep
        fail("slept only %zu times in %zu messages: nothing was tested", sleeper.sleeps(), count);
    }
    set_activity("long sleep");
    long_sleep(peer, session, sleeper);
    peer.channel.barrier(session.worker().progress_function());
}

}  // namespace gpushm::ucp_test
