// SPDX-License-Identifier: BSD-3-Clause
// Whether a standby kernel serves enough small copies before something sends it away.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gpushm {

/** A run of small copies ends where the kernel leaves: a launch costs as much as it gains in a
 * dozen of them. A program that waits for all work of its GPU in each step, or computes for long,
 * has short runs. One that waits for a stream or an event, or for messages only, has one run
 * without an end. See doc/decisions/standby-runs.md.
 *
 * Thread safe; a copy that two threads count at once may count as one. */
class CopyRuns {
public:
    /** So many copies repay a launch. */
    static constexpr uint32_t kLong = 32;

    /** A small copy begins. `ends`: how many runs have ended so far. `weight`: of how many common
     * small copies it gains the time. */
    void note_copy(uint64_t ends, uint32_t weight) {
        uint32_t copies = copies_.load(std::memory_order_relaxed);
        if (ends_.load(std::memory_order_relaxed) != ends) {
            ends_.store(ends, std::memory_order_relaxed);
            last_copies_.store(copies, std::memory_order_relaxed);
            copies = 0;
        }
        copies_.store(std::min(copies + weight, kLong), std::memory_order_relaxed);
    }

    /** True before the first run has ended, too. */
    bool are_long() const {
        return last_copies_.load(std::memory_order_relaxed) >= kLong ||
               copies_.load(std::memory_order_relaxed) >= kLong;
    }

private:
    std::atomic<uint64_t> ends_{0};
    std::atomic<uint32_t> copies_{kLong};       // since then, up to kLong
    std::atomic<uint32_t> last_copies_{kLong};  // of the run before
};

}  // namespace gpushm
