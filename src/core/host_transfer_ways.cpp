// SPDX-License-Identifier: BSD-3-Clause
#include "core/host_transfer_ways.hpp"

#include <algorithm>

namespace gpushm {
namespace {

using Way = HostTransferWays::Way;

// Transfers from the first one, or from a change, to a trial: a few do not pay for one.
constexpr uint32_t kFirstInterval = 16;

// A slower way takes up to three times as long. Of transfers alone two of so many are a trial; of several together all
// that begin with it, which may be hundreds.
constexpr uint32_t kLastIntervalAlone = 1024;
constexpr uint32_t kLastIntervalOfCrowd = 8192;

// Transfers of a trial. The first ones touch most slots for the first time, whose pages are not mapped then.
constexpr uint32_t kFirstTrial = 8;
constexpr uint32_t kLaterTrial = 2;

// The clock is not looked at for all of a way that is known.
constexpr uint32_t kChoicesPerLook = 4;

// Of an estimate: what is new counts for so much.
constexpr double kWeight = 0.25;

// What takes longer than the estimate was held up by something else.
constexpr double kMostGrowth = 2;

// What the program does, or where its processes run, has changed.
constexpr double kChange = 1.5;

Way other_than(Way way) { return way == Way::kernel ? Way::slots : Way::kernel; }
size_t index_of(Way way) { return static_cast<size_t>(way); }

}  // namespace

void HostTransferWays::count(State &known) {
    known.until_trial -= known.until_trial != 0 ? 1 : 0;
    known.trial_left -= known.trial_left != 0 ? 1 : 0;
}

HostTransferWays::Choice HostTransferWays::choose(Load load, size_t length) {
    State &known = state(load, length);
    if (known.interval == 0) {
        known.interval = known.until_trial = kFirstInterval;
    }
    if (known.is_trial && known.trial_left == 0) {
        end_trial(load, known);
    }
    if (!known.is_trial && known.until_trial == 0) {
        const bool is_first = known.seconds_per_byte[index_of(other_than(known.best))] == 0;
        known.is_trial = true;
        known.trial_left = is_first ? kFirstTrial : kLaterTrial;
        known.trial = 0;
    }
    count(known);
    if (known.is_trial) {
        return {other_than(known.best), true};
    }
    return {known.best, ++known.choices % kChoicesPerLook == 0};
}

void HostTransferWays::end_trial(Load load, State &known) {
    const uint32_t last = load == Load::alone ? kLastIntervalAlone : kLastIntervalOfCrowd;
    known.is_trial = false;
    known.until_trial = known.interval;
    known.interval = std::min(2 * known.interval, last);
    if (known.trial != 0) {
        known.seconds_per_byte[index_of(other_than(known.best))] = known.trial;
        take_better(known);
    }
}

void HostTransferWays::take_better(State &known) {
    const double best = known.seconds_per_byte[index_of(known.best)];
    const double other = known.seconds_per_byte[index_of(other_than(known.best))];
    if (best != 0 && other != 0 && other < best) {
        known.best = other_than(known.best);
        known.least = other;
        known.interval = known.until_trial = kFirstInterval;
    }
}

void HostTransferWays::note(Load load, size_t length, Way way, uint64_t bytes, uint64_t nanoseconds) {
    State &known = state(load, length);
    const double seconds = static_cast<double>(nanoseconds) * 1e-9 / static_cast<double>(bytes);
    if (way != known.best) {
        known.trial = known.trial == 0 ? seconds : std::min(known.trial, seconds);
        return;
    }
    double &estimate = known.seconds_per_byte[index_of(way)];
    estimate = estimate == 0 ? seconds : estimate + kWeight * (std::min(seconds, kMostGrowth * estimate) - estimate);
    if (known.least == 0 || estimate < known.least) {
        known.least = estimate;
    } else if (estimate > kChange * known.least) {
        known.least = estimate;
        known.interval = kFirstInterval;
        known.until_trial = std::min(known.until_trial, kFirstInterval);
    }
    take_better(known);
}

}  // namespace gpushm
