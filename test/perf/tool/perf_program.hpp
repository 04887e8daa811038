// SPDX-License-Identifier: BSD-3-Clause
// What the two programs do alike around their measurements.
#pragma once

#include "../driver.hpp"
#include "../options.hpp"
#include "perf_run.hpp"
#include "plan.hpp"
#include "results.hpp"

#include <memory>
#include <string>

namespace gpushm::perf {

// Exit statuses.
constexpr int kFailed = 1;
constexpr int kWrongOptions = 2;

/** "PROGRAM: text" on standard error. */
void say(const std::string &program, const std::string &text);

/** One rank's view of the GPUs. */
struct Gpus {
    /** Opens the driver where the plan needs it and there is one; the plan gets what is left
     * without it, and `*note` says so. `place`: of the ranks of this node, which one this is.
     * Throws std::runtime_error if nothing is left, or a device is not there. */
    Gpus(Plan *plan, int place, std::string *note);

    std::unique_ptr<Driver> driver;  // null: none is used
    int device = 0;                  // of this rank
    int first_device = 0;            // of all, where they share one
};

/** The facts that the driver knows are filled in. */
RunFacts facts_of(const std::string &program, const std::string &carrier, const Gpus &gpus);

}  // namespace gpushm::perf
