// SPDX-License-Identifier: BSD-3-Clause
// How long calls of an application take while nobody communicates, right after messages, and beside
// a thread that waits for messages.
#pragma once

#include "app_calls.hpp"
#include "figures.hpp"
#include "message_buffers.hpp"
#include "ucp_program.hpp"

#include <future>
#include <vector>

namespace gpushm::perf {

/** Both sides call the same functions with the same arguments; the calls are made by side 0, whose
 * figures they are. Messages go between device memory. */
class CallTests {
public:
    /** `most_bytes`: of a message. */
    CallTests(const MeasuringSide &here, size_t most_bytes);

    /** After a pause in which everything has come to rest. */
    Figures idle(const AppCall &call, const Effort &effort);

    /** Each right after `round_trips` of messages of `size` bytes. */
    Figures after(const AppCall &call, size_t size, unsigned round_trips, const Effort &effort);

    /** With pauses, while another thread waits for messages of `size` bytes, which come every
     * kGapUs and are answered. `*round_trip`: theirs, as side 1 sees them. */
    Figures beside(const AppCall &call, size_t size, const Effort &effort, Figures *round_trip);

private:
    double timed(const AppCall &call) const;
    std::vector<double> calls_after(const AppCall &call, unsigned round_trips,
                                    uint64_t count) const;
    std::vector<double> calls_until(const AppCall &call, const std::future<void> &answers) const;
    std::vector<double> ask(uint64_t count) const;
    void answer(uint64_t count) const;
    void prepare(size_t size);

    const MeasuringSide here_;
    size_t size_ = 0;
    MessageBuffers source_;
    MessageBuffers destination_;
};

}  // namespace gpushm::perf
