// SPDX-License-Identifier: BSD-3-Clause
// Page faults of this process: all of the CPU by getrusage(2), those of managed memory by CUPTI.
#pragma once

#include "../driver.hpp"

#include <string>

namespace gpushm::perf {

/** `managed_cpu`, those of the CPU in managed memory, and `gpu` mean nothing where CUPTI does not
 * count. */
struct PageFaults {
    double cpu = 0;
    double managed_cpu = 0;
    double gpu = 0;
};

/** libcupti is opened at run time. One object at a time in a process. */
class PageFaultCounter {
public:
    explicit PageFaultCounter(const Driver &driver);

    /** Why CUPTI does not count; empty if it does. */
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
