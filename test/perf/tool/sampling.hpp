// SPDX-License-Identifier: BSD-3-Clause
// A measurement of one cell, and how it is repeated.
#pragma once

#include "../figures.hpp"
#include "ranks.hpp"

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace gpushm::perf {

/** One rank's part of a measurement. All ranks call the same functions in the same order; they
 * throw std::runtime_error when the driver or a message fails. */
class Measurement {
public:
    virtual ~Measurement() = default;

    /** Buffers for messages of `size` bytes. */
    virtual void prepare(size_t size) = 0;

    /** Sources get contents that were never there, destinations what never arrives. */
    virtual void renew_contents() = 0;

    /** A message, a window or an operation, with what has to be done before. Returns what this rank
     * adds to the sample, us: a sample is the sum over all ranks. */
    virtual double once() = 0;

    /** How often once() has to be called after a renewal until all contents have arrived; at most
     * Effort::kMinSamples. */
    virtual size_t calls_until_complete() const { return 1; }

    /** Throws std::runtime_error unless the contents of the last renewal have arrived. */
    virtual void check() = 0;
};

/** At rank 0: the samples, us; at least one of them. `effort` is rank 0's. */
std::vector<double> take_samples(Ranks &ranks, Measurement &measurement, const Effort &effort);

/** Contents that were never sent before have to arrive. What is wrong with those that arrived at
 * this rank; empty if nothing. */
std::string validate(Ranks &ranks, Measurement &measurement);

/** What an action throws, as text; empty if nothing. */
template <typename Action>
std::string error_of(const Action &action) {
    try {
        action();
        return {};
    } catch (const std::exception &error) {
        return error.what();
    }
}

}  // namespace gpushm::perf
