// SPDX-License-Identifier: BSD-3-Clause
// Which copies the standby kernel makes, and which ones a copy engine.
#pragma once

#include "core/copy/copy_types.hpp"

#include <cstddef>

namespace gpushm {

/** No standby kernel is given a longer copy. The second limit is for copies between device memory
 * and other memory than that of the GPU. */
constexpr size_t kMaxStandbyBytes = 1u << 20;
constexpr size_t kMaxStandbyElsewhere = 768u << 10;

/** The standby kernel makes copies of rows one by one: more are a launch of another kernel. */
constexpr size_t kMostCopiesOfRows = 2;

/** What the limit depends on beside the job. */
struct StandbyConditions {
    bool is_cluster;  // StandbyKernel::is_cluster()
    bool from_host;   // the source is page-locked host memory
    bool idle;        // the engine has nothing else under way
};

/** The length in bytes of the largest transfer that the standby kernel copies more quickly than a
 * copy engine. It is never more in traffic (`idle` false) than alone. */
size_t standby_limit(const CopyJob &job, const StandbyConditions &conditions);

}  // namespace gpushm
