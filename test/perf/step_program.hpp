// SPDX-License-Identifier: BSD-3-Clause
// The program whose steps and passes are measured: one of its two ranks.
#pragma once

#include "driver.hpp"
#include "figures.hpp"
#include "memory.hpp"
#include "neighbour_exchange.hpp"
#include "own_work.hpp"
#include "step_cell.hpp"
#include "step_times.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gpushm::perf {

/** Both ranks make the same calls with the same arguments; figures are those of rank 0. Throws
 * std::runtime_error when the driver fails and when wrong data arrived. */
class StepProgram {
public:
    StepProgram(const Driver &driver, Mode mode, int rank);

    /** Prints the cell's line on rank 0. `passes`: at least 1. */
    void measure(const StepCell &cell, const Effort &effort, unsigned passes);

    /** As in AppKernel. */
    std::string note() const { return work_.kernel().note(); }

private:
    /** Two buffers of device memory: each has the messages to be sent at its beginning and those
     * received at its end. */
    struct Buffers {
        Buffers(const Driver &driver, const StepCell &cell);
        size_t bytes;
        size_t target;  // where received messages begin
        Memory first;
        Memory second;
    };

    void measure_steps(const StepCell &cell, const Effort &effort);
    void measure_passes(const StepCell &cell, unsigned passes);

    void make_steps(const StepCell &cell, Buffers *buffers, NeighbourExchange *halo, uint64_t count,
                    StepTimes *times);
    void step(const StepCell &cell, const Buffers &buffers, NeighbourExchange *halo,
              StepTimes *times);
    StepTimes pass(const StepCell &cell, bool checked, double *allocate_us, double *free_us);

    void fill(const StepCell &cell, Buffers *buffers) const;
    void check(const StepCell &cell, const Buffers &buffers) const;
    uint64_t seed_of(int rank) const { return (2 * contents_ + static_cast<uint64_t>(rank)) << 16; }
    unsigned long calls() const { return driver_.counts_calls() ? driver_.calls() : 0; }
    void print(const StepCell &cell, const char *test, const Figures &figures,
               const std::string &more) const;

    const Driver &driver_;
    const Mode mode_;
    const int rank_;
    OwnWork work_;
    Memory reduced_;         // a double
    uint64_t contents_ = 0;  // counts the cells, alike on both ranks
};

}  // namespace gpushm::perf
