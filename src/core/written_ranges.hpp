// SPDX-License-Identifier: BSD-3-Clause
// Where puts of ours that have not ended write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace gpushm {

/** Ranges of a peer's memory, disjoint. One thread at a time. */
class WrittenRanges {
public:
    /** A range while it lives. */
    class Hold {
    public:
        Hold() = default;
        Hold(Hold &&other) noexcept : ranges_(std::exchange(other.ranges_, nullptr)), begin_(other.begin_) {}
        Hold &operator=(Hold &&other) noexcept {
            std::swap(ranges_, other.ranges_);
            std::swap(begin_, other.begin_);
            return *this;
        }
        ~Hold() {
            if (ranges_ != nullptr) {
                ranges_->ends_.erase(begin_);
            }
        }

    private:
        friend WrittenRanges;
        Hold(WrittenRanges *ranges, uint64_t begin) : ranges_(ranges), begin_(begin) {}
        WrittenRanges *ranges_ = nullptr;  // which outlive it; null: none
        uint64_t begin_ = 0;
    };

    WrittenRanges() = default;
    WrittenRanges(const WrittenRanges &) = delete;
    WrittenRanges &operator=(const WrittenRanges &) = delete;

    /** `length` is not 0. */
    bool overlaps(uint64_t address, uint64_t length) const {
        const auto next = ends_.lower_bound(end_of(address, length));
        return next != ends_.begin() && std::prev(next)->second > address;
    }
    /** One that overlaps none. */
    Hold hold(uint64_t address, uint64_t length) {
        ends_[address] = end_of(address, length);
        return Hold(this, address);
    }

private:
    static uint64_t end_of(uint64_t address, uint64_t length) {
        return address + std::min(length, UINT64_MAX - address);
    }

    std::map<uint64_t, uint64_t> ends_;  // by begin
};

}  // namespace gpushm
