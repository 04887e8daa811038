// SPDX-License-Identifier: BSD-3-Clause
// The way of gets between host memory, chosen by how long each way has taken.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** CMA copies once instead of twice, but fetches bytes slowly from the cache of the core that has
 * just written them. That core copies them quickly to shared memory. Which way is quicker depends
 * on where the cores lie and on the operating system, which no process knows. So the way is taken
 * that was quicker before with this peer and length. The other way is tried after 16 transfers,
 * then ever less often, down to twice in 1024. With a peer that gets little nothing is tried.
 * doc/decisions/host-transfers.md has the measurements.
 *
 * One thread at a time. */
class HostTransferWays {
public:
    /** cma: the reader calls process_vm_readv. slots: the owner copies into slots of the reader's
     * mailbox. */
    enum class Way : uint8_t { cma, slots };

    /** Whether a transfer is the only one of its connection, or several are under way. */
    enum class Load : uint8_t { alone, crowd };

    struct Choice {
        Way way;
        bool is_timed;  // note() is to be told what it takes
    };

    /** Bytes. Other lengths take CMA. */
    static constexpr size_t kMin = 16u << 10;
    static constexpr size_t kMax = 1u << 20;
    static constexpr bool covers(size_t length) { return length >= kMin && length <= kMax; }
    /** Whether the time of one length says something of the other. */
    static constexpr bool are_alike(size_t one, size_t other) {
        return class_of(one) == class_of(other);
    }

    /** For a transfer, or all of a round that begins now. The length is covered. */
    Choice choose(Load load, size_t length);
    /** The last choice does not count: the transfer was not alone after all. */
    void give_back(Load load, size_t length);
    /** The way that is taken when nothing is tried. */
    Way best(Load load, size_t length) const { return state(load, length).best; }

    /** Transfers of this length have ended: `bytes` in all took so many nanoseconds, while nothing
     * else was under way. */
    void note(Load load, size_t length, Way way, uint64_t bytes, uint64_t nanoseconds);

private:
    static constexpr size_t kWays = 2;
    static constexpr size_t kLoads = 2;
    static constexpr unsigned kClasses = 7;  // of lengths, from one power of two to the next
    static_assert(kMin << (kClasses - 1) == kMax, "all that is covered");

    struct State {
        double seconds_per_byte[kWays] = {};  // 0: not known
        double least = 0;                     // of the best way, since the last change
        Way best = Way::cma;
        uint32_t choices = 0;      // until the clock is looked at
        uint32_t interval = 0;     // choices between trials; 0: before the first one
        uint32_t until_trial = 0;  // choices
        uint32_t trial = 0;        // choices of the present trial; 0: there is none
        uint32_t trial_left = 0;   // choices of it that are left
        uint32_t given_back = 0;   // choices of it
        double trial_sum = 0;      // seconds per byte
        uint32_t trial_count = 0;
    };

    static void end_trial(Load load, State &known);
    static void take_better(State &known);
    State &state(Load load, size_t length) {
        return states_[static_cast<size_t>(load)][class_of(length)];
    }
    const State &state(Load load, size_t length) const {
        return states_[static_cast<size_t>(load)][class_of(length)];
    }

    static constexpr unsigned class_of(size_t length) {
        return static_cast<unsigned>(__builtin_clzll(kMin) - __builtin_clzll(length));
    }
    State states_[kLoads][kClasses];
};

}  // namespace gpushm
