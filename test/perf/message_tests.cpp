// SPDX-License-Identifier: BSD-3-Clause
#include "message_tests.hpp"

namespace gpushm::perf {
namespace {

constexpr ucp_tag_t kTag = 1;

}  // namespace

MessageTests::MessageTests(const MeasuringSide &here, MessageBuffers &source,
                           MessageBuffers &destination, bool one_way)
    : here_(here),
      side_(here.side),
      connection_(here.connection),
      source_(source),
      destination_(destination),
      one_way_(one_way) {}

/** Preparing is not measured, so a round trip, which contains the other side's, cannot be used. */
bool MessageTests::measures_one_way() const {
    return one_way_ || source_.type().needs_preparation() ||
           destination_.type().needs_preparation();
}

/** Far enough apart for the slots of a window. */
uint64_t MessageTests::seed_of(int sender) const {
    return (2 * contents_ + static_cast<uint64_t>(sender)) << 16;
}

void MessageTests::warm_up(size_t size, double seconds) {
    if (!source_.type().renewed && !destination_.type().renewed) {
        latency(size, {seconds});
    }
}

Figures MessageTests::latency(size_t size, const Effort &effort) {
    size_ = size;
    source_.prepare(size, 1);
    destination_.prepare(size, 1);
    ++contents_;
    if (measures_one_way()) {
        return measure_on_both_sides(
            here_, [this](uint64_t n) { return one_way(n, 1); }, effort, 1);
    }
    source_.prepare_source(seed_of(side_.number()));
    destination_.prepare_destination();
    const Figures figures = measure_on_both_sides(
        here_, [this](uint64_t n) { return ping_pong(n); }, effort, 2);
    check_ping_pong();
    return figures;
}

Figures MessageTests::window(size_t size, const Effort &effort) {
    size_ = size;
    source_.prepare(size, slots_of(size));
    destination_.prepare(size, slots_of(size));
    ++contents_;
    const unsigned messages = window_of(size);
    return measure_on_both_sides(
        here_, [this, messages](uint64_t n) { return one_way(n, messages); }, effort, messages);
}

std::vector<double> MessageTests::ping_pong(uint64_t count) {
    char *const from = source_.address(0);
    char *const to = destination_.address(0);
    std::vector<double> round_trips;
    ucs_status_ptr_t receive = nullptr;
    if (side_.number() == 1) {
        receive = connection_.receive(to, size_, kTag);
    }
    side_.barrier(connection_.progress_function());
    for (uint64_t i = 0; i < count; ++i) {
        if (side_.number() == 0) {
            receive = connection_.receive(to, size_, kTag);
            const double start = now_us();
            ucs_status_ptr_t send = connection_.send(from, size_, kTag);
            connection_.wait(receive);
            connection_.wait(send);
            round_trips.push_back(now_us() - start);
        } else {
            connection_.wait(receive);
            // Before the answer, so that no message is unexpected.
            receive = i + 1 < count ? connection_.receive(to, size_, kTag) : nullptr;
            connection_.wait(connection_.send(from, size_, kTag));
        }
    }
    return round_trips;
}

void MessageTests::check_ping_pong() {
    destination_.check(seed_of(1 - side_.number()));
    side_.barrier(connection_.progress_function());
}

std::vector<double> MessageTests::one_way(uint64_t count, unsigned messages) {
    const Side::Progress progress = connection_.progress_function();
    std::vector<double> times;
    for (uint64_t i = 0; i < count; ++i) {
        contents_ += source_.type().has_new_contents() ? 1 : 0;
        if (side_.number() == 0) {
            const double start = send_messages(messages);
            times.push_back((messages == 1 ? side_.receiver_finished() : side_.both_finished()) -
                            start);
        } else {
            receive_messages(messages);
        }
    }
    if (side_.number() == 1) {
        destination_.check(seed_of(0));
    }
    side_.barrier(progress);
    return times;
}

/** Returns when the first one was given to UCP. */
double MessageTests::send_messages(unsigned messages) {
    const Side::Progress progress = connection_.progress_function();
    source_.prepare_source(seed_of(0));
    side_.barrier(progress);
    const double start = now_us();
    for (unsigned i = 0; i < messages; ++i) {
        requests_.push_back(connection_.send(source_.address(i), size_, kTag));
    }
    connection_.wait_all(&requests_);
    side_.set_finished(now_us());
    side_.barrier(progress);
    return start;
}

void MessageTests::receive_messages(unsigned messages) {
    const Side::Progress progress = connection_.progress_function();
    destination_.prepare_destination();
    for (unsigned i = 0; i < messages; ++i) {
        requests_.push_back(connection_.receive(destination_.address(i), size_, kTag));
    }
    side_.barrier(progress);
    connection_.wait_all(&requests_);
    side_.set_finished(now_us());
    side_.barrier(progress);
    if (source_.type().has_new_contents() || destination_.type().renewed) {
        destination_.check(seed_of(0));
    }
}

}  // namespace gpushm::perf
