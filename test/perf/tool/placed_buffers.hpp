// SPDX-License-Identifier: BSD-3-Clause
// The managed buffers of a rank in the placements of OMB-UM: who works on them, and what of the
// measured time that is.
#pragma once

#include "touching.hpp"

#include <vector>

namespace gpushm::perf {

/** Of the paper's equations (1) and (2): the work after a receive is measured with it, the
 * migration it causes included; what it takes without migration, the launches, is taken out. */
class PlacedBuffers {
public:
    /** `on_gpu`: whether this rank works on them by kernels. */
    PlacedBuffers(const Driver &driver, bool on_gpu) : touching_(driver), on_gpu_(on_gpu) {}

    /** From now on; either may be empty. Their pages come to this rank's place, and what work
     * takes without migration is measured. */
    void use(const std::vector<PageRange> &sent, const std::vector<PageRange> &received) {
        sent_ = sent;
        received_ = received;
        work_before();
        work_us_ = received_.empty() ? 0 : touching_.time_without_migration(received_, on_gpu_);
    }

    /** Before each message, not measured. */
    void work_before() const {
        touching_.touch(sent_, on_gpu_);
        touching_.touch(received_, on_gpu_);
    }

    /** After a receive, measured. */
    void work_after() const { touching_.touch(received_, on_gpu_); }

    /** us of work_after() without migration. */
    double work_us() const { return work_us_; }

private:
    const Touching touching_;
    const bool on_gpu_;
    std::vector<PageRange> sent_;
    std::vector<PageRange> received_;
    double work_us_ = 0;
};

}  // namespace gpushm::perf
