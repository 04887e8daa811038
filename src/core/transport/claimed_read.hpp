// SPDX-License-Identifier: BSD-3-Clause
// Offered messages that this process has claimed and copies itself.
#pragma once

#include <atomic>
#include <utility>

namespace gpushm {

/** Lives from the claim of an OfferedMessage until this process has read the message, or has left
 * it to the sender. The sender waits meanwhile, so a process should not leave MPI. */
class ClaimedRead {
public:
    /** Of this process so far; they wrap around. */
    struct Totals {
        unsigned begun;
        unsigned ended;
    };
    /** Thread safe. */
    static Totals totals() {
        return {begun_.load(std::memory_order_relaxed), ended_.load(std::memory_order_relaxed)};
    }

    /** None. */
    ClaimedRead() = default;
    static ClaimedRead begin() {
        ClaimedRead read;
        read.exists_ = true;
        begun_.fetch_add(1, std::memory_order_relaxed);
        return read;
    }
    ClaimedRead(ClaimedRead &&other) noexcept : exists_(std::exchange(other.exists_, false)) {}
    ClaimedRead &operator=(ClaimedRead &&other) noexcept {
        end();
        exists_ = std::exchange(other.exists_, false);
        return *this;
    }
    ~ClaimedRead() { end(); }

    void end() {
        if (std::exchange(exists_, false)) {
            ended_.fetch_add(1, std::memory_order_relaxed);
        }
    }

private:
    static inline std::atomic<unsigned> begun_{0};
    static inline std::atomic<unsigned> ended_{0};

    bool exists_ = false;
};

}  // namespace gpushm
