// SPDX-License-Identifier: BSD-3-Clause
// Ranges that unfinished operations of this process read or write.
#pragma once

#include "core/base/immovable.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

namespace gpushm {

/** Ranges of a peer's memory. One thread at a time.
 *
 * They are kept by their order of magnitude, so that a search has to go back from an address by no
 * more than about the length of a range: one long range among many short ones costs one more
 * search, not a look at all of them. */
class WrittenRanges : Immovable {
    struct Range {
        unsigned order;  // of magnitude: the length is less than 2^order
        uint64_t begin;
        uint64_t end;  // behind the last byte

        bool operator<(const Range &other) const {
            return std::tie(order, begin, end) < std::tie(other.order, other.begin, other.end);
        }
    };
    using Counts = std::map<Range, size_t>;  // how many operations have the range

public:
    struct Release {
        Counts::iterator range;
        void operator()(WrittenRanges *ranges) const {
            --ranges->held_;
            if (--range->second == 0) {
                ranges->counts_.erase(range);
            }
        }
    };
    /** A range while it lives. The ranges outlive it. */
    using Hold = std::unique_ptr<WrittenRanges, Release>;

    /** `length` is not 0. */
    bool overlaps(uint64_t address, uint64_t length) const {
        const uint64_t end = end_of(address, length);
        auto first = counts_.begin();
        while (first != counts_.end()) {
            const unsigned order = first->first.order;
            const uint64_t longest = UINT64_MAX >> (kOrders - order);
            auto range = counts_.lower_bound({order, address - std::min(address, longest), 0});
            while (is_before(range, order, end) && range->first.end <= address) {
                ++range;
            }
            if (is_before(range, order, end)) {
                return true;
            }
            first = counts_.lower_bound({order + 1, 0, 0});
        }
        return false;
    }

    /** How many holds there are. */
    size_t held() const { return held_; }

    /** `length` is not 0. */
    Hold hold(uint64_t address, uint64_t length) {
        const unsigned order = kOrders - static_cast<unsigned>(__builtin_clzll(length));
        const auto range = counts_.emplace(Range{order, address, end_of(address, length)}, 0).first;
        ++range->second;
        ++held_;
        return Hold(this, {range});
    }

private:
    static constexpr unsigned kOrders = 64;

    static uint64_t end_of(uint64_t address, uint64_t length) {
        return address + std::min(length, UINT64_MAX - address);
    }
    /** Whether it is one of that order that begins before `end`. */
    bool is_before(Counts::const_iterator range, unsigned order, uint64_t end) const {
        return range != counts_.end() && range->first.order == order && range->first.begin < end;
    }

    Counts counts_;
    size_t held_ = 0;
};

}  // namespace gpushm
