// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/standby_worth.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpushm {
namespace {

// A gap of a third of the longest one ends a step. A gap that was an interruption makes the longest
// one at most six times as long. The longest one shrinks: 50 copies forget an interruption and the
// gaps of an earlier pattern, and a burst of 64 copies leaves enough of the gap before it.
constexpr uint64_t kStepOfLongest = 3;
constexpr uint64_t kMaxGrowth = 6;
constexpr uint64_t kForgottenOfLongest = 64;

// A step with so many copies ends even if no gap was long.
constexpr uint32_t kMaxStepCopies = 256;

constexpr uint32_t kFirstWatchedCopies = 4;
constexpr uint32_t kWatchedCopies = 16;
constexpr uint32_t kMinWatchedSteps = 2;  // one may be many of a new pattern
constexpr uint32_t kOddWindows = 2;
constexpr double kOddRatio = 1.25;
constexpr double kReferenceShare = 0.125;  // of a new window in the reference

// A slot of a trial has three to six steps, of which the first one is not measured.
constexpr uint64_t kStepsOfSlot = 3;
constexpr uint32_t kLongSteps = 2;
constexpr uint64_t kMaxSlotGrowth = 8;  // at a time, for the step may have been interrupted
constexpr uint32_t kMaxSlots = 24;
constexpr double kMinDifference = 1.0 / 128;
constexpr int kLead = 3;
constexpr int kLeadOfTheOneBefore = 2;

// 256 slots are about a thousand steps. A trial that confirms the way from before takes some 20,
// half of them in the worse way.
constexpr uint32_t kFirstIntervalLog = 8;
constexpr uint32_t kMaxIntervalLog = 14;
constexpr uint64_t kFirstQuietCopies = 64;
constexpr uint64_t kMaxQuietCopies = 16384;

unsigned log2_above(uint64_t value) {
    unsigned log = 0;
    while (uint64_t{1} << log < value) {
        ++log;
    }
    return log;
}

/** The Thue-Morse sequence. */
bool is_with_kernel(uint64_t slot) {
    return __builtin_parityll(slot) != 0;
}

}  // namespace

void StandbyWorth::note_copy(uint64_t now, uint64_t waits) {
    now = std::max(now, last_copy_);  // another thread may have read the clock later
    const uint64_t gap = now - std::exchange(last_copy_, now);
    ++copies_;
    if (gap >= kLongPauseNs) {
        pause(now, waits);
        return;
    }
    ++window_.copies;
    ++step_copies_;
    if (begins_step(gap) || step_copies_ >= kMaxStepCopies) {
        end_step(now, waits);
    }
}

bool StandbyWorth::begins_step(uint64_t gap) {
    uint64_t most = long_gap_ == 0 ? gap : kMaxGrowth * long_gap_;
    if (settling_) {  // a start of the kernel lengthens this step: it only restores the longest gap
        most = gap_before_settling_;
    }
    long_gap_ -= long_gap_ / kForgottenOfLongest;
    long_gap_ = std::max(long_gap_, std::min(gap, most));
    return kStepOfLongest * gap >= long_gap_;
}

void StandbyWorth::pause(uint64_t now, uint64_t waits) {
    changed_ = true;
    settle();
    if (trying_) {
        end_slot(now, waits);
    } else {
        begin_window(now, waits);
    }
}

void StandbyWorth::settle() {
    if (!std::exchange(settling_, true)) {
        gap_before_settling_ = long_gap_;
    }
}

void StandbyWorth::begin_window(uint64_t now, uint64_t waits) {
    window_ = {now, waits};
    begin_step(now);
}

void StandbyWorth::begin_step(uint64_t now) {
    last_step_ = now;
    step_copies_ = 0;
}

void StandbyWorth::end_step(uint64_t now, uint64_t waits) {
    ++window_.steps;
    step_ns_ = window_.steps == 1 ? now - last_step_ : std::min(step_ns_, now - last_step_);
    begin_step(now);
    if (settling_) {
        settling_ = false;
        begin_window(now, waits);
    } else if (trying_) {
        if (now >= slot_end_) {
            end_slot(now, waits);
        }
    } else if (window_.copies >= (reference_ns_ == 0 ? kFirstWatchedCopies : kWatchedCopies) &&
               window_.steps >= kMinWatchedSteps) {
        end_watched_window(now, waits);
    }
}

void StandbyWorth::take(bool with, uint64_t now, uint64_t waits) {
    if (std::exchange(with_, with) != with) {
        settle();
    }
    begin_window(now, waits);
}

// ---------------------------------------------------------------- between trials

void StandbyWorth::end_watched_window(uint64_t now, uint64_t waits) {
    compare_with_reference(window_.copy_ns(now), is_waiting(waits));
    begin_window(now, waits);
    if (is_time_for_trial(now)) {
        begin_trial(now, waits);
    }
}

/** In most steps of the window. */
bool StandbyWorth::is_waiting(uint64_t waits) const {
    return 2 * (waits - window_.waits) >= window_.steps;
}

void StandbyWorth::compare_with_reference(double copy_ns, bool is_waiting) {
    if (reference_ns_ == 0) {
        reference_ns_ = copy_ns;
        reference_waits_ = is_waiting;
        return;
    }
    const bool is_odd = is_waiting != reference_waits_ || copy_ns > kOddRatio * reference_ns_ ||
                        reference_ns_ > kOddRatio * copy_ns;
    odd_windows_ = is_odd ? odd_windows_ + 1 : 0;
    if (odd_windows_ == kOddWindows) {
        changed_ = true;
        reference_waits_ = is_waiting;
        odd_windows_ = 0;
        reference_ns_ = 0;
    } else if (!is_odd) {
        reference_ns_ += (copy_ns - reference_ns_) * kReferenceShare;
    }
}

bool StandbyWorth::is_time_for_trial(uint64_t now) const {
    return now >= next_trial_ || (changed_ && copies_ >= quiet_copies_);
}

// ---------------------------------------------------------------- a trial

void StandbyWorth::begin_trial(uint64_t now, uint64_t waits) {
    if (std::exchange(changed_, false)) {
        decided_ = false;
    }
    trying_ = true;
    slots_ = 0;
    begin_votes(step_ns_);
    next_slot(now, waits);
}

void StandbyWorth::begin_votes(uint64_t step_ns) {
    slot_log_ = log2_above(kStepsOfSlot * step_ns);
    long_steps_ = 0;
    lead_ = 0;
    tried_ns_[0] = tried_ns_[1] = 0;
}

void StandbyWorth::next_slot(uint64_t now, uint64_t waits) {
    const uint64_t slot = now >> slot_log_;
    slot_end_ = (slot + 1) << slot_log_;
    take(is_with_kernel(slot), now, waits);
}

/** At the end of a step, or of a pause. */
void StandbyWorth::end_slot(uint64_t now, uint64_t waits) {
    if (!settling_) {
        note_slot(now, waits);
    }
    ++slots_;
    const int enough_with = decided_ && chosen_ ? kLeadOfTheOneBefore : kLead;
    const int enough_without = decided_ && !chosen_ ? kLeadOfTheOneBefore : kLead;
    if (lead_ >= enough_with) {
        end_trial(true, now, waits);
    } else if (-lead_ >= enough_without) {
        end_trial(false, now, waits);
    } else if (slots_ >= kMaxSlots) {
        end_trial(decided_ && chosen_, now, waits);
    } else {
        next_slot(now, waits);
    }
}

void StandbyWorth::note_slot(uint64_t now, uint64_t waits) {
    long_steps_ = step_ns_ > uint64_t{1} << slot_log_ ? long_steps_ + 1 : 0;
    if (is_waiting(waits) != reference_waits_) {  // the program has changed meanwhile
        reference_waits_ = !reference_waits_;
        decided_ = false;
        begin_votes(step_ns_);
    } else if (long_steps_ >=
               kLongSteps) {  // what was taken for steps were parts, or it has changed
        begin_votes(std::min(step_ns_, kMaxSlotGrowth << slot_log_));
    } else {
        tried_ns_[with_ ? 1 : 0] = window_.copy_ns(now);
        vote();
    }
}

void StandbyWorth::vote() {
    const double without = tried_ns_[0];
    const double with = tried_ns_[1];
    if (without == 0 || with == 0) {
        return;
    }
    if (std::fabs(with - without) > kMinDifference * std::min(with, without)) {
        lead_ += with < without ? 1 : -1;
    }
    compared_ns_[0] = without;
    compared_ns_[1] = with;
    tried_ns_[0] = tried_ns_[1] = 0;
}

void StandbyWorth::end_trial(bool with, uint64_t now, uint64_t waits) {
    const bool is_as_before = with == chosen_;
    // Each trial that confirms the way from before makes the next one rarer: also where the times
    // of a program vary so much that it seems to change all the time, when nothing has.
    interval_log_ = is_as_before ? std::clamp(interval_log_ + 1, kFirstIntervalLog, kMaxIntervalLog)
                                 : kFirstIntervalLog;
    const bool is_false_alarm = !decided_ && is_as_before;
    quiet_copies_ = std::clamp(is_false_alarm ? 2 * quiet_copies_ : quiet_copies_ / 4,
                               kFirstQuietCopies, kMaxQuietCopies);
    // By the clock, so that other processes begin at the same time.
    const uint64_t interval = uint64_t{1} << (slot_log_ + interval_log_);
    next_trial_ = ((now + interval / 2) / interval + 1) * interval;
    trying_ = false;
    decided_ = true;
    chosen_ = with;
    copies_ = 0;
    reference_ns_ = 0;
    odd_windows_ = 0;
    take(with, now, waits);
}

}  // namespace gpushm
