// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/gpu_turn.hpp"

#include <algorithm>

namespace gpushm {
namespace {

// Nanoseconds.
// The peer learns of the end of the exchange later, and a launch takes a while to reach the GPU.
constexpr uint64_t kHeadStart = 5000;
// A third of what the GPU takes to turn. A program that takes longer does something else first.
constexpr uint64_t kLongestLaunching = 50'000;
constexpr uint64_t kShortestLaunching = 100;

}  // namespace

void GpuTurn::come(uint64_t launches) {
    const uint64_t launched_at = watch_.launched_at.load(std::memory_order_relaxed);
    learn(launched_at);
    launches_seen_ = launches;
    const uint64_t now = monotonic_nanoseconds();
    has_waited_ = now - launched_at > kShortNs;
    own_until_ = now + kShortNs;
    has_arrived_ = has_gone_on_ = false;
    ends_before_ = ends_ != 0 ? ends_ : ends_before_;
    ends_ = 0;
}

/** How long the program takes from its last call of MPI to its last launch, if that call ended its
 * exchange of messages: a collective operation behind it would wait for whoever waits here. The
 * longest of the last times counts most, because a head start that is too short gains nothing. It
 * takes several exchanges that end otherwise to forget them. */
void GpuTurn::learn(uint64_t launched_at) {
    if (!is_contended_ || !has_arrived_) {
        return;
    }
    // Else another thread launches kernels meanwhile.
    const bool is_behind = launched_at > last_at_;
    const uint64_t taken = launched_at - last_at_;
    if (is_behind && !has_gone_on_ && taken < kLongestLaunching) {
        launching_ns_ = std::max({taken, launching_ns_ - launching_ns_ / 8, kShortestLaunching});
    } else {
        launching_ns_ = launching_ns_ / 2 < kShortestLaunching ? 0 : launching_ns_ / 2;
    }
}

void GpuTurn::let_peer_launch() {
    const bool is_last = ++ends_ == ends_before_;
    if (!is_last || peers_ != 1 || launching_ns_ == 0 || is_own()) {
        return;
    }
    const uint64_t end = monotonic_nanoseconds() + launching_ns_ + kHeadStart;
    while (monotonic_nanoseconds() < end) {
    }
    last_at_ = end;
}

}  // namespace gpushm
