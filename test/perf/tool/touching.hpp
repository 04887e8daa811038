// SPDX-License-Identifier: BSD-3-Clause
// Who works on managed memory before a message is sent and after it has arrived, as OMB-UM has it:
// a kernel on the GPU, or the CPU. Both read each page, by which it comes to them.
#pragma once

#include "../driver.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::perf {

/** Managed memory. */
struct PageRange {
    char *address;
    size_t bytes;
};

/** In the context that is current when it is made, which is current in all calls. Functions throw
 * std::runtime_error when the driver fails. */
class Touching {
public:
    explicit Touching(const Driver &driver);
    ~Touching();
    Touching(const Touching &) = delete;
    Touching &operator=(const Touching &) = delete;

    /** Reads all pages, and returns when they are there. On the GPU by a kernel for each range. */
    void touch(const std::vector<PageRange> &ranges, bool on_gpu) const;

    /** us that touch() takes where nothing has to migrate, the median of many: the launches of
     * kernels that read nothing and the wait for them, or a read by the CPU of pages that it has.
     */
    double time_without_migration(const std::vector<PageRange> &ranges, bool on_gpu) const;

private:
    void launch(const PageRange &range) const;

    const Driver &driver_;
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
    CUstream stream_ = nullptr;
};

}  // namespace gpushm::perf
