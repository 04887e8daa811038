// SPDX-License-Identifier: BSD-3-Clause
// Where operations of ours that have not ended write, or read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace gpushm {

/** Ranges of a peer's memory. One thread at a time. */
class WrittenRanges {
    using Ends = std::multimap<uint64_t, uint64_t>;  // by begin

public:
    /** A range while it lives. */
    class Hold {
    public:
        Hold() = default;
        Hold(Hold &&other) noexcept : ranges_(std::exchange(other.ranges_, nullptr)), range_(other.range_) {}
        Hold &operator=(Hold &&other) noexcept {
            std::swap(ranges_, other.ranges_);
            std::swap(range_, other.range_);
            return *this;
        }
        ~Hold() {
            if (ranges_ != nullptr) {
                ranges_->ends_.erase(range_);
            }
        }

    private:
        friend WrittenRanges;
        Hold(WrittenRanges *ranges, Ends::iterator range) : ranges_(ranges), range_(range) {}
        WrittenRanges *ranges_ = nullptr;  // which outlive it; null: none
        Ends::iterator range_;
    };

    WrittenRanges() = default;
    WrittenRanges(const WrittenRanges &) = delete;
    WrittenRanges &operator=(const WrittenRanges &) = delete;

    /** `length` is not 0. */
    bool overlaps(uint64_t address, uint64_t length) const {
        const uint64_t end = end_of(address, length);
        auto range = ends_.lower_bound(address - std::min(address, longest_));
        while (range != ends_.end() && range->first < end && range->second <= address) {
            ++range;
        }
        return range != ends_.end() && range->first < end;
    }
    Hold hold(uint64_t address, uint64_t length) {
        longest_ = std::max(longest_, length);
        return Hold(this, ends_.emplace(address, end_of(address, length)));
    }

private:
    static uint64_t end_of(uint64_t address, uint64_t length) {
        return address + std::min(length, UINT64_MAX - address);
    }

    Ends ends_;
    uint64_t longest_ = 0;  // of all that there were
};

}  // namespace gpushm
