// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/base/monotonic_clock.hpp"

#include <cstdint>

namespace gpushm {

/** Says at one of many polls that some time has passed. By time and not by polls: a process that
 * yields its core in each of them, on a machine with more processes than cores, polls a hundred
 * times a second. One thread at a time. */
class PollInterval {
public:
    explicit PollInterval(uint64_t nanoseconds) : nanoseconds_(nanoseconds) {}

    /** To be asked in each poll: whether so much time has passed since it last was true. Found late
     * by up to 63 polls, once; as long as each poll takes that time, each is told. */
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
