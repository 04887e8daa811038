// SPDX-License-Identifier: BSD-3-Clause
// Whether a program is quicker with the standby kernel or without it, found by trying both.
#pragma once

#include <cstdint>

namespace gpushm {

/** Counting copies does not show what the kernel costs a program: waits for the GPU take longer,
 * launches take a CPU, and the program's kernels run beside it. The time from one small copy to the
 * next contains all of this, whatever else a step of the program does. So a trial measures steps
 * with the kernel and without it in turn. The quicker way stays until a later trial finds the other
 * one quicker.
 *
 * - A step ends with a long gap between two copies. Only whole steps are measured, for the kernel
 * may gain in one part of a step and lose in another. The first step after a change of the way is
 * not measured.
 * - The clock, which all processes of a node share, says which way is tried at a time. So
 * processes that wait for each other try the same way at the same time; otherwise the slowest one
 * would hide what the others gain or lose. The ways alternate by the Thue-Morse sequence, so that a
 * steady drift of the times favours neither.
 * - Each comparison is one vote, however large the difference, so that one interrupted step
 * decides nothing. The way that is ahead by three votes wins; the one from before the trial needs
 * two. If no way wins, the one from before the trial stays; if there was no trial before, there is
 * no kernel.
 * - Trials come ever less often. A new one begins soon when the program changes: the time of a
 * copy differs for two windows, the program begins or ceases to wait for the GPU in its steps, or
 * there was a long pause.
 *
 * See doc/decisions/standby-worth.md. One thread at a time. */
class StandbyWorth {
public:
    /** A pause that is as long is not within a step. */
    static constexpr uint64_t kLongPauseNs = 10'000'000;

    /** A small copy begins. `now`: monotonic_nanoseconds(). `waits`: how often the process has
     * waited for all work of a GPU so far. */
    void note_copy(uint64_t now, uint64_t waits);

    /** Whether the kernel is to be there for the next copy. Defined before the first trial and in
     * trials, too. */
    bool wants_kernel() const { return with_; }
    bool is_trying() const { return trying_; }
    /** The time of a step divided by its copies, when the ways were last compared. For the log. */
    double compared_ns(bool with) const { return compared_ns_[with ? 1 : 0]; }

private:
    /** What is measured: whole steps. */
    struct Window {
        uint64_t begin = 0;
        uint64_t waits = 0;  // until then
        uint32_t copies = 0;
        uint32_t steps = 0;

        double copy_ns(uint64_t end) const { return static_cast<double>(end - begin) / copies; }
    };

    bool begins_step(uint64_t gap);
    void pause(uint64_t now, uint64_t waits);
    void settle();
    void begin_step(uint64_t now);
    void end_step(uint64_t now, uint64_t waits);
    void begin_window(uint64_t now, uint64_t waits);
    void take(bool with, uint64_t now, uint64_t waits);
    void end_watched_window(uint64_t now, uint64_t waits);
    bool is_waiting(uint64_t waits) const;
    void compare_with_reference(double copy_ns, bool is_waiting);
    bool is_time_for_trial(uint64_t now) const;
    void begin_trial(uint64_t now, uint64_t waits);
    void begin_votes(uint64_t step_ns);
    void next_slot(uint64_t now, uint64_t waits);
    void end_slot(uint64_t now, uint64_t waits);
    void note_slot(uint64_t now, uint64_t waits);
    void vote();
    void end_trial(bool with, uint64_t now, uint64_t waits);

    bool with_ = true;
    bool settling_ = true;  // the step under way is not measured
    uint64_t last_copy_ = 0;
    uint64_t long_gap_ = 0;
    uint64_t gap_before_settling_ = 0;  // long_gap_ when settling_ began
    Window window_;
    uint64_t last_step_ = 0;    // when it began
    uint32_t step_copies_ = 0;  // since then
    uint64_t step_ns_ = 0;  // of the shortest one in the window: others may have been interrupted

    // Between trials
    bool decided_ = false;      // a trial has ended, and nothing has changed since
    bool changed_ = false;      // since the last trial
    uint32_t odd_windows_ = 0;  // in a row
    double reference_ns_ = 0;   // of a copy; 0: not known
    bool reference_waits_ = false;
    uint64_t copies_ = 0;        // since the last trial
    uint64_t quiet_copies_ = 0;  // so many are to come first
    uint32_t interval_log_ = 0;  // in slots, until the next trial
    uint64_t next_trial_ = 0;

    // In a trial
    bool trying_ = false;
    bool chosen_ = true;     // the way from before the trial
    unsigned slot_log_ = 0;  // of its length in ns
    uint64_t slot_end_ = 0;
    uint32_t slots_ = 0;
    uint32_t long_steps_ = 0;     // longer than a slot, in a row
    double tried_ns_[2] = {};     // without, with; 0: not known
    double compared_ns_[2] = {};  // the last two that were compared
    int lead_ = 0;                // of the kernel
};

}  // namespace gpushm
