// SPDX-License-Identifier: BSD-3-Clause
#include "exchange.hpp"

#include "../mpi/pattern.hpp"
#include "../ucp/check.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace gpushm::scale_test {

using ucp_test::check_received;
using ucp_test::GuardedBuffer;
using ucp_test::make_buffer;
using ucp_test::Message;
using ucp_test::require;

namespace {

// Peers that a process talks to at once; bounds the memory of the test's own buffers.
constexpr size_t kPeersAtOnce = 16;

// For 256 processes on two cores.
constexpr double kPatienceSeconds = 240;

Message message_from(uint64_t exchange, size_t sender, size_t size) {
    static constexpr size_t kOffsets[] = {0, 1, 16, 3, 64};
    const uint64_t seed = mpi_test::message_seed(exchange << 16 | sender, size);
    return {size, kOffsets[sender % 5], size + 32, seed};
}

}  // namespace

Member::Member(size_t rank, size_t process_count)
    : rank_(rank),
      process_count_(process_count),
      context_({UCP_FEATURE_TAG, false}),
      worker_(context_),
      endpoints_(process_count) {}

Progress Member::progress() {
    return [this] { return worker_.progress(); };
}

void Member::connect(const Meeting &meeting) {
    for (size_t distance = 1; distance < process_count_; ++distance) {
        const size_t peer = peer_at(distance);
        endpoints_[peer] = std::make_unique<ucp_test::Endpoint>(worker_, meeting.address(peer));
    }
}

void Member::disconnect() {
    for (std::unique_ptr<ucp_test::Endpoint> &endpoint : endpoints_) {
        endpoint.reset();
    }
    exchanges_ = 0;  // as in the processes that come next
}

void Member::wait(ucs_status_ptr_t request, const char *what) {
    if (UCS_PTR_IS_PTR(request)) {
        const double deadline = ucp_test::now_seconds() + kPatienceSeconds;
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            if (worker_.progress() == 0) {
                sched_yield();
            }
            if (ucp_test::now_seconds() > deadline) {
                ucp_test::fail("%s does not end", what);
            }
        }
    }
    require(worker_.wait(request), what);
}

void Member::exchange(size_t size, MemoryKind source, MemoryKind destination) {
    ucp_test::set_activity("process " + std::to_string(rank_) + ": " + to_string(source) + " -> " +
                           to_string(destination) + ", " + std::to_string(size) + " bytes");
    ++exchanges_;
    for (size_t first = 1; first < process_count_; first += kPeersAtOnce) {
        const size_t last = std::min(first + kPeersAtOnce, process_count_) - 1;
        exchange_with(first, last, size, source, destination);
    }
}

/** Sends to the processes at these distances, receives from those at minus these distances. */
void Member::exchange_with(size_t first_distance, size_t last_distance, size_t size,
                           MemoryKind source, MemoryKind destination) {
    const ucp_request_param_t parameters = ucp_test::plain_request();
    const Message sent = message_from(exchanges_, rank_, size);
    const std::unique_ptr<GuardedBuffer> outgoing = make_buffer(source, size + 64);
    outgoing->prepare_source(sent);
    std::vector<std::unique_ptr<GuardedBuffer>> incoming;
    std::vector<ucs_status_ptr_t> requests;
    const auto sender_at = [&](size_t distance) { return peer_at(process_count_ - distance); };
    for (size_t distance = first_distance; distance <= last_distance; ++distance) {
        const size_t sender = sender_at(distance);
        const Message message = message_from(exchanges_, sender, size);
        incoming.push_back(make_buffer(destination, size + 64));
        incoming.back()->prepare_destination(message);
        requests.push_back(ucp_tag_recv_nbx(worker_.get(), incoming.back()->address(message),
                                            message.capacity, tag_of(sender), ~ucp_tag_t{0},
                                            &parameters));
        requests.push_back(ucp_tag_send_nbx(endpoints_[peer_at(distance)]->get(),
                                            outgoing->address(sent), sent.size, tag_of(rank_),
                                            &parameters));
    }
    for (ucs_status_ptr_t request : requests) {
        wait(request, "a message");
    }
    for (size_t distance = first_distance; distance <= last_distance; ++distance) {
        check_received(*incoming[distance - first_distance],
                       message_from(exchanges_, sender_at(distance), size));
    }
}

std::string Member::transports_to(size_t peer) const {
    char *text = nullptr;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    ucp_ep_print_info(endpoints_[peer]->get(), stream);
    fclose(stream);
    const std::string printed(text, length);
    free(text);
    // Lines like "#    lane[0]:  3:gpushm/gpushm.0 md[1] ..." (UCX src/ucp/core/ucp_ep.c).
    std::string names;
    for (size_t at = printed.find("lane["); at != std::string::npos;
         at = printed.find("lane[", at + 1)) {
        const size_t begin = printed.find_first_not_of("0123456789: ", printed.find(':', at));
        names += printed.substr(begin, printed.find('/', begin) - begin) + " ";
    }
    return names;
}

}  // namespace gpushm::scale_test
