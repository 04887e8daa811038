// SPDX-License-Identifier: BSD-3-Clause
// Many messages under way at once.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

namespace gpushm::ucp_test {
namespace {

/** The tag of the n-th message of a process; the low bit says whose. */
ucp_tag_t tag_of(size_t n, int sender) {
    return n << 1 | static_cast<ucp_tag_t>(sender);
}

}  // namespace

void window(Peer &peer) {
    Session session(peer.channel, UCP_FEATURE_TAG);
    const Progress progress = session.worker().progress_function();
    const std::vector<MemoryKind> kinds = kinds_of(peer.options, "host");
    const std::vector<size_t> sizes = sizes_of(peer.options, "8,5000,200,70000,1,300001,0,9000");
    const size_t count = peer.options.number("count", 64);
    const size_t rounds = peer.options.number("rounds", 3);

    std::vector<std::unique_ptr<GuardedBuffer>> sources;
    std::vector<std::unique_ptr<GuardedBuffer>> destinations;
    const auto size_of = [&](size_t n) { return sizes[n % sizes.size()]; };
    for (size_t i = 0; i < count; ++i) {
        // Not the kinds with the sizes: another kind meets a size in each round.
        sources.push_back(make_buffer(kinds[(i / sizes.size()) % kinds.size()], 300100));
        destinations.push_back(
            make_buffer(kinds[(i / sizes.size() / kinds.size() + i) % kinds.size()], 300100));
    }
    const ucp_request_param_t parameters = plain_request();
    for (size_t round = 0; round < rounds; ++round) {
        set_activity("window, round " + std::to_string(round));
        std::vector<ucs_status_ptr_t> requests;
        for (size_t i = 0; i < count; ++i) {
            const size_t n = round * count + i;
            const Message message = nth_message(2 * n + (1 - peer.role), size_of(i));
            destinations[i]->prepare_destination(message);
            requests.push_back(ucp_tag_recv_nbx(
                session.worker().get(), destinations[i]->address(message), message.capacity,
                tag_of(n, 1 - peer.role), ~ucp_tag_t{0}, &parameters));
        }
        for (size_t i = 0; i < count; ++i) {
            const size_t n = round * count + i;
            const Message message = nth_message(2 * n + peer.role, size_of(i));
            sources[i]->prepare_source(message);
            requests.push_back(ucp_tag_send_nbx(session.ep(), sources[i]->address(message),
                                                message.size, tag_of(n, peer.role), &parameters));
        }
        for (ucs_status_ptr_t request : requests) {
            require(session.worker().wait(request), "send or receive");
        }
        for (size_t i = 0; i < count; ++i) {
            check_received(*destinations[i],
                           nth_message(2 * (round * count + i) + (1 - peer.role), size_of(i)));
        }
    }
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
