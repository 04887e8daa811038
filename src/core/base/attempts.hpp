// SPDX-License-Identifier: BSD-3-Clause
// Something that is worth trying only where others join in.
#pragma once

namespace gpushm {

/** Says whether to try. After kVain attempts in a row that were in vain, only every 13th time:
 * kWithout times are without one. 13 has no divisor in common with the usual periods of programs.
 */
class Attempts {
public:
    bool may_try() {
        if (left_out_ == 0) {
            return true;
        }
        --left_out_;
        return false;
    }
    /** The end of an attempt. */
    void note(bool succeeded) {
        vain_ = succeeded ? 0 : vain_ + (vain_ < kVain ? 1 : 0);
        left_out_ = vain_ == kVain ? kWithout : 0;
    }

private:
    static constexpr unsigned kVain = 2;
    static constexpr unsigned kWithout = 12;

    unsigned vain_ = 0;      // attempts in a row
    unsigned left_out_ = 0;  // that are still to come
};

}  // namespace gpushm
