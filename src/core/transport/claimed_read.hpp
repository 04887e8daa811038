// SPDX-License-Identifier: BSD-3-Clause
// Offered messages that this process has claimed and not read yet.
#pragma once

#include <atomic>
#include <utility>

namespace gpushm {

/** One such message (OfferedMessage), while it lives: its sender waits. A caller that stops making
 * progress can wait for those first. */
class ClaimedRead {
public:
    ClaimedRead() = default;
    /** One begins. */
    static ClaimedRead begin() {
        ClaimedRead read;
        read.counts_ = true;
        count_.fetch_add(1, std::memory_order_relaxed);
        return read;
    }
    ClaimedRead(ClaimedRead &&other) noexcept : counts_(std::exchange(other.counts_, false)) {}
    ClaimedRead &operator=(ClaimedRead &&other) noexcept {
        std::swap(counts_, other.counts_);
        return *this;
    }
    ~ClaimedRead() {
        if (counts_) {
            count_.fetch_sub(1, std::memory_order_relaxed);
        }
    }

    /** How many there are in this process. Thread safe. */
    static unsigned count() { return count_.load(std::memory_order_relaxed); }

private:
    static inline std::atomic<unsigned> count_{0};

    bool counts_ = false;
};

}  // namespace gpushm
