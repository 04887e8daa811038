// SPDX-License-Identifier: BSD-3-Clause
// The two processes of a measurement, and the page that they share for everything but messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace gpushm::perf {

/** In shared memory. Each array has an element for each side, written by that side only; what is
 * not atomic is read by the other side after the next barrier. */
struct SharedPage {
    static constexpr size_t kMaxAddress = 64 << 10;

    /** How many barriers the side has reached; store release, load acquire. */
    struct alignas(128) Arrival {
        std::atomic<uint64_t> count;
    } arrived[2];
    uint64_t samples;    // of side 0: how often the next test is repeated
    double finished[2];  // us: when the side's part of a message, or a window, was over
    uint64_t address_bytes[2];
    char address[2][kMaxAddress];
};

/** One of the two processes. */
class Side {
public:
    using Progress = std::function<void()>;

    /** `page`: the descriptor that start_sides gave. */
    Side(int number, int page);

    /** 0 sends first and measures. */
    int number() const { return number_; }

    /** Returns when both sides are here; calls `progress` until then. */
    void barrier(const Progress &progress);

    /** The other side's bytes. Throws std::runtime_error when they are too many. */
    std::string exchange(const std::string &bytes, const Progress &progress);

    /** What side 0 gives. */
    uint64_t agree(uint64_t samples, const Progress &progress);

    void set_finished(double time_us) { page_->finished[number_] = time_us; }

    /** After a barrier: when the later one of the sides was finished, and when side 1 was. */
    double both_finished() const;
    double receiver_finished() const { return page_->finished[1]; }

private:
    int number_;
    uint64_t barriers_ = 0;
    SharedPage *page_;
};

/** Starts this program twice more with its arguments and `--role=0` or `--role=1` and `--page=FD`,
 * waits for both and ends what is left when one fails or `limit_seconds` are over. 0 if both
 * succeeded, 124 after the limit, otherwise the status of the first that failed: 128 and the number
 * of a signal if one ended it. */
int run_sides(int argc, char **argv, double limit_seconds);

/** Why run_sides gave `status`; empty where the side that failed has said it. */
std::string reason_of(int status, double limit_seconds);

}  // namespace gpushm::perf
