// SPDX-License-Identifier: BSD-3-Clause
// A peer that is stopped (SIGSTOP) while messages are under way, and goes on later: nobody is told
// of an error, and nothing is lost.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <algorithm>
#include <csignal>
#include <unistd.h>

namespace gpushm::ucp_test {
namespace {

/** Messages of both processes, all under way at once. Eager ones, more than a mailbox holds, and
 * large ones. */
class Traffic {
public:
    Traffic(Peer &peer, Session &session) : role_(peer.role), session_(session) {
        const std::vector<MemoryKind> kinds = kinds_of(peer.options, "host");
        const std::vector<size_t> sizes = sizes_of(peer.options, "8,200,9000,3000,20000");
        const std::vector<size_t> large = {300001, 3000001};
        for (size_t i = 0; i < peer.options.number("count", 400); ++i) {
            sizes_.push_back(i % 50 == 49 ? large[i / 50 % 2] : sizes[i % sizes.size()]);
            const size_t capacity = sizes_.back() + 96;
            sources_.push_back(make_buffer(kinds[i / 50 % kinds.size()], capacity));
            destinations_.push_back(make_buffer(kinds[i / 25 % kinds.size()], capacity));
        }
    }

    void start(size_t round) {
        round_ = round;
        const ucp_request_param_t parameters = plain_request();
        for (size_t i = 0; i < sizes_.size(); ++i) {
            const Message in = message(i, 1 - role_);
            destinations_[i]->prepare_destination(in);
            requests_.push_back(ucp_tag_recv_nbx(session_.worker().get(),
                                                 destinations_[i]->address(in), in.capacity, i,
                                                 ~ucp_tag_t{0}, &parameters));
        }
        for (size_t i = 0; i < sizes_.size(); ++i) {
            const Message out = message(i, role_);
            sources_[i]->prepare_source(out);
            requests_.push_back(ucp_tag_send_nbx(session_.ep(), sources_[i]->address(out), out.size,
                                                 i, &parameters));
        }
    }

    size_t total() const { return 2 * sizes_.size(); }
    size_t under_way() const {
        return static_cast<size_t>(
            std::count_if(requests_.begin(), requests_.end(), [](ucs_status_ptr_t request) {
                return UCS_PTR_IS_PTR(request) &&
                       ucp_request_check_status(request) == UCS_INPROGRESS;
            }));
    }

    void finish() {
        // Not Worker::wait, whose patience a long stop would end.
        while (under_way() != 0) {
            session_.worker().progress();
        }
        for (ucs_status_ptr_t request : requests_) {
            require(session_.worker().wait(request), "send or receive");
        }
        requests_.clear();
        for (size_t i = 0; i < sizes_.size(); ++i) {
            check_received(*destinations_[i], message(i, 1 - role_));
        }
    }

private:
    Message message(size_t i, int sender) const {
        return nth_message(2 * (round_ * sizes_.size() + i) + static_cast<size_t>(sender),
                           sizes_[i]);
    }

    int role_;
    Session &session_;
    size_t round_ = 0;
    std::vector<size_t> sizes_;
    std::vector<std::unique_ptr<GuardedBuffer>> sources_;
    std::vector<std::unique_ptr<GuardedBuffer>> destinations_;
    std::vector<ucs_status_ptr_t> requests_;
};

/** Stops the peer, lives on without it while messages are under way, and lets it go on. Whether
 * some were under way through all of it. */
bool stop_for(double seconds, pid_t pid, const Session &session, const Traffic &traffic) {
    kill(pid, SIGSTOP);
    while (!is_stopped(pid)) {
        session.worker().progress();
    }
    const double end = now_seconds() + seconds;
    while (traffic.under_way() != 0 && now_seconds() < end) {
        session.worker().progress();
    }
    const bool amid_messages = traffic.under_way() != 0;
    kill(pid, SIGCONT);
    return amid_messages;
}

/** At another moment each time: when nothing has ended, when a third has ... */
bool stop_at(size_t n, size_t stops, double seconds, pid_t pid, const Session &session,
             const Traffic &traffic) {
    while (stops * (traffic.total() - traffic.under_way()) < n * traffic.total()) {
        session.worker().progress();
    }
    return stop_for(seconds, pid, session, traffic);
}

}  // namespace

void stopped_peer(Peer &peer) {
    const size_t stops = peer.options.number("stops", 3);
    const double seconds = static_cast<double>(peer.options.number("milliseconds", 1000)) / 1000;
    Session session(peer.channel, UCP_FEATURE_TAG, UCP_ERR_HANDLING_MODE_PEER);
    const Progress progress = session.worker().progress_function();
    const auto pid =
        static_cast<pid_t>(std::stoi(peer.channel.exchange(std::to_string(getpid()), progress)));
    Traffic traffic(peer, session);
    // On a busy machine the last messages may end before the stop: such a round does not count.
    const size_t most_rounds = 20 * stops;
    size_t n = 0;
    for (size_t round = 0; n < stops; ++round) {
        set_activity("round " + std::to_string(round) + ", peer stopped " + std::to_string(n) +
                     " times amid messages");
        if (round == most_rounds) {
            fail("all messages ended without the peer too often");
        }
        peer.channel.barrier(progress);
        traffic.start(round);
        const bool amid_messages =
            peer.role == 0 && stop_at(n, stops, seconds, pid, session, traffic);
        traffic.finish();
        require(session.endpoint()->error(), "the endpoint");
        const std::string counts = amid_messages ? "counts" : "";
        n += (counts + peer.channel.exchange(counts, progress)).empty() ? 0 : 1;
    }
}

}  // namespace gpushm::ucp_test
