// SPDX-License-Identifier: BSD-3-Clause
// Values by ranges of addresses.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace gpushm {

/** A map from the first address of each range to its value. Ranges are disjoint. `Value` has a
 * function `uintptr_t range_end() const`: the address behind the last byte. Whoever inserts a range
 * takes out those that it overlaps. */
template <typename Value>
class IntervalMap : public std::map<uintptr_t, Value> {
public:
    using Iterator = typename std::map<uintptr_t, Value>::iterator;

    /** The first range that contains `address` or lies behind it; end() if there is none. */
    Iterator first_behind(uintptr_t address) {
        const auto next = this->upper_bound(address);
        if (next == this->begin() || std::prev(next)->second.range_end() <= address) {
            return next;
        }
        return std::prev(next);
    }

    /** The range that contains `address`; end() if there is none. */
    Iterator containing(uintptr_t address) {
        const auto found = first_behind(address);
        return found != this->end() && found->first <= address ? found : this->end();
    }

    /** Takes out the ranges that overlap [begin, end). Calls `before` with each pair of begin and
     * value first. Allocates nothing. */
    template <typename Before>
    IntervalMap take_overlapping(uintptr_t begin, uintptr_t end, Before before) {
        IntervalMap taken;
        auto range = first_behind(begin);
        while (range != this->end() && range->first < end) {
            before(*range);
            taken.insert(this->extract(range++));
        }
        return taken;
    }
    IntervalMap take_overlapping(uintptr_t begin, uintptr_t end) {
        return take_overlapping(begin, end, [](const auto &) {});
    }
};

}  // namespace gpushm
