// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/host_transfer_ways.hpp"

#include <algorithm>

namespace gpushm {
namespace {

using Way = HostTransferWays::Way;

/** When and how long the other way is tried, in choices. A slower way takes up to three times as
 * long. */
struct Plan {
    uint32_t first_interval;  // few transfers do not pay for a trial
    uint32_t last_interval;
    uint32_t first_trial;  // its first half touches slots whose pages are not mapped yet
    uint32_t later_trial;
};
constexpr Plan kPlans[] = {{16, 1024, 8, 2},  // Load::alone
                           {4, 128, 2, 1}};   // Load::crowd

// Choices of a trial that may be given back. Without a limit a trial would never end where
// transfers are hardly ever alone.
constexpr uint32_t kMaxGivenBack = 16;

// Only some transfers by a known way are timed, and the first ones after a change.
constexpr uint32_t kChoicesPerLook = 4;
constexpr uint32_t kChoicesAfterChange = 8;

// The share of a new time in the estimate. A time that is much longer than the estimate counts as
// kMaxGrowth of it, because something else held the transfer up.
constexpr double kWeight = 0.25;
constexpr double kMaxGrowth = 2;

// Times vary, so a way has to be better by this factor.
constexpr double kBetter = 0.95;

// By this factor: what the program does, or where its processes run, has changed.
constexpr double kChange = 1.5;

Way other_than(Way way) {
    return way == Way::cma ? Way::slots : Way::cma;
}
size_t index_of(Way way) {
    return static_cast<size_t>(way);
}

}  // namespace

HostTransferWays::Choice HostTransferWays::choose(Load load, size_t length) {
    const Plan &plan = kPlans[static_cast<size_t>(load)];
    State &known = state(load, length);
    if (known.interval == 0) {
        known.interval = known.until_trial = plan.first_interval;
    }
    if (known.trial != 0 && known.trial_left == 0) {
        end_trial(load, known);
    }
    if (known.trial == 0 && known.until_trial == 0) {
        const bool is_first = known.seconds_per_byte[index_of(other_than(known.best))] == 0;
        known.trial = known.trial_left = is_first ? plan.first_trial : plan.later_trial;
        known.given_back = 0;
        known.trial_sum = 0;
        known.trial_count = 0;
    }
    if (known.trial != 0) {
        --known.trial_left;
        return {other_than(known.best), true};
    }
    --known.until_trial;
    ++known.choices;
    return {known.best,
            known.choices <= kChoicesAfterChange || known.choices % kChoicesPerLook == 0};
}

void HostTransferWays::give_back(Load load, size_t length) {
    State &known = state(load, length);
    if (known.trial != 0 && known.trial_left < known.trial && known.given_back < kMaxGivenBack) {
        ++known.trial_left;
        ++known.given_back;
    }
}

void HostTransferWays::end_trial(Load load, State &known) {
    known.trial = 0;
    known.until_trial = known.interval;
    if (known.trial_count != 0) {
        known.interval =
            std::min(2 * known.interval, kPlans[static_cast<size_t>(load)].last_interval);
        known.seconds_per_byte[index_of(other_than(known.best))] =
            known.trial_sum / known.trial_count;
        take_better(known);
    }
}

void HostTransferWays::take_better(State &known) {
    const double best = known.seconds_per_byte[index_of(known.best)];
    const double other = known.seconds_per_byte[index_of(other_than(known.best))];
    if (best != 0 && other != 0 && other < kBetter * best) {
        known.best = other_than(known.best);
        known.least = other;
        known.choices = 0;
    }
}

void HostTransferWays::note(Load load, size_t length, Way way, uint64_t bytes,
                            uint64_t nanoseconds) {
    State &known = state(load, length);
    const double seconds = static_cast<double>(nanoseconds) * 1e-9 / static_cast<double>(bytes);
    if (known.trial != 0) {
        if (way != known.best && known.trial_left < std::max(known.trial / 2, 1u)) {
            known.trial_sum += seconds;
            ++known.trial_count;
        }
        return;
    }
    if (way != known.best) {
        return;  // it began before that changed
    }
    double &estimate = known.seconds_per_byte[index_of(way)];
    estimate = estimate == 0
                   ? seconds
                   : estimate + kWeight * (std::min(seconds, kMaxGrowth * estimate) - estimate);
    if (known.least == 0 || estimate < known.least) {
        known.least = estimate;
    } else if (estimate > kChange * known.least) {
        known.least = estimate;
        known.interval = kPlans[static_cast<size_t>(load)].first_interval;
        known.until_trial = std::min(known.until_trial, known.interval);
    }
    take_better(known);
}

}  // namespace gpushm
