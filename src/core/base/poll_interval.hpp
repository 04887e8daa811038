// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/base/monotonic_clock.hpp"

#include <cstdint>

namespace gpushm {

/** Tells a caller that polls often when some time has passed. It goes by time, not by the number of
 * polls: a process that yields its core in each poll, on a machine with more processes than cores,
 * polls only a hundred times a second. One thread at a time. */
class PollInterval {
public:
    explicit PollInterval(uint64_t nanoseconds) : nanoseconds_(nanoseconds) {}

    /** To be called in each poll: whether `nanoseconds` have passed since it last returned true.
     * The first true answer may come up to 63 polls late. While each poll takes at least that
     * time, each call returns true. */
    bool over() {
        if (++polls_ % kPollsPerLook != 0 && !over_) {
            return false;
        }
        const uint64_t now = monotonic_nanoseconds();
        over_ = now - last_ >= nanoseconds_;
        if (over_) {
            last_ = now;
        }
        return over_;
    }

private:
    static constexpr uint32_t kPollsPerLook = 64;  // the clock costs as much as five idle polls

    uint64_t nanoseconds_;
    uint64_t last_ = 0;
    uint32_t polls_ = 0;
    bool over_ = false;  // it was true at the last look
};

}  // namespace gpushm
