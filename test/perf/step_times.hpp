// SPDX-License-Identifier: BSD-3-Clause
// The times of the steps of a program, part by part, and which steps are slow and why.
#pragma once

#include "figures.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace gpushm::perf {

/** Parts of a step, in their order. */
enum class Part { launch, wait, exchange, copies, reduce };

constexpr size_t kParts = 5;

/** One thread. */
class StepTimes {
public:
    /** A step begins, or goes on, now. */
    void begin();
    /** What was done since the last call of this or of begin() was `part`. A step may come back to
     * a part. */
    void add(Part part);
    void end();

    size_t count() const { return steps_.size(); }
    /** us of whole steps, without the first `skipped`. */
    std::vector<double> totals(size_t skipped) const;

    /** Members of JSON: "parts", the median of each part in us, and "slow", the steps that took
     * more than kSlow times the median step: of how many, what they took beyond the median in us,
     * and how many had most of that in which part. The first `skipped` steps do not count. */
    std::string as_json(size_t skipped) const;

    static constexpr double kSlow = 5;

private:
    using Step = std::array<double, kParts>;

    double total(size_t step) const;
    Step medians(size_t skipped) const;
    std::string slow_steps(size_t skipped) const;

    std::vector<Step> steps_;
    Step current_ = {};
    double last_us_ = 0;
};

}  // namespace gpushm::perf
