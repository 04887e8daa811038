// SPDX-License-Identifier: BSD-3-Clause
// The processes of a benchmark as it sees them, whatever carries their messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpushm::perf {

/** One process's view. One thread. Functions throw std::runtime_error when a message fails. */
class Ranks {
public:
    virtual ~Ranks() = default;

    virtual int rank() const = 0;
    virtual int count() const = 0;
    /** Whether now_us() of all ranks is the same clock. */
    virtual bool share_clock() const = 0;

    // All ranks make these calls, in the same order.
    virtual void barrier() = 0;
    /** What rank `speaker` gives. */
    virtual double told_by(int speaker, double value) = 0;
    /** What the lowest rank gives that gives something; empty if none does. May be cut off. */
    virtual std::string first_text(const std::string &mine) = 0;
    /** At rank 0: the sums over all ranks, which give as many values each. */
    virtual void add_up(std::vector<double> *values) = 0;

    // Messages of a pair of ranks arrive in the order in which they were sent.
    virtual void send(int to, const void *data, size_t bytes) = 0;
    virtual void receive(int from, void *data, size_t bytes) = 0;

    virtual void start_send(int to, const void *data, size_t bytes) = 0;
    virtual void start_receive(int from, void *data, size_t bytes) = 0;
    /** For the end of the first of those that were started and not waited for; of all. */
    virtual void wait_next() = 0;
    virtual void wait_all() = 0;
};

}  // namespace gpushm::perf
