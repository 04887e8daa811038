// SPDX-License-Identifier: BSD-3-Clause
// Measures all cells of a plan.
#pragma once

#include "../driver.hpp"
#include "plan.hpp"
#include "ranks.hpp"
#include "results.hpp"
#include "sampling.hpp"

#include <functional>
#include <memory>
#include <stdexcept>

namespace gpushm::perf {

/** One rank's part of a run. */
struct PerfRun {
    const Plan &plan;
    Ranks &all;
    Ranks *pair;           // the first two of them; null at the others
    const Driver *driver;  // null where no cell needs a GPU
    int device;            // of this rank, except in Situation::one_gpu
    int first_device;      // of all ranks then
    Results *results;      // null except at rank 0
    /** Null in a program without them. */
    std::function<std::unique_ptr<Measurement>(const Cell &cell)> measure_collective;
};

/** All ranks call it. The exit status: 1 if a cell could not be measured. Throws std::runtime_error
 * when the run has to end: wrong data, or a message or the driver failed. Where all ranks know of
 * it `results` has it. */
int measure_all(const PerfRun &run);

/** Thrown by all ranks; rank 0 has told it. */
class ToldEverywhere : public std::runtime_error {
    using runtime_error::runtime_error;
};

}  // namespace gpushm::perf
