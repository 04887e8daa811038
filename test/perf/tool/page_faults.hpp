// SPDX-License-Identifier: BSD-3-Clause
// Page faults of this process: those of the CPU by getrusage(2), those of GPUs by CUPTI.
#pragma once

#include "../driver.hpp"

#include <string>

namespace gpushm::perf {

/** `gpu` means nothing where GPU faults are not counted. */
struct PageFaults {
    double cpu = 0;
    double gpu = 0;
};

/** libcupti is opened at run time. One object at a time in a process. */
class PageFaultCounter {
public:
    explicit PageFaultCounter(const Driver &driver);

    /** Why faults of GPUs are not counted; empty if they are. */
    const std::string &refusal() const { return refusal_; }

    void start();
    /** Since the start. */
    PageFaults stop();

private:
    std::string enable();

    std::string refusal_;
    long cpu_at_start_ = 0;
};

}  // namespace gpushm::perf
