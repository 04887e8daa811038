// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/standby_policy.hpp"

#include "core/copy/cost_table.hpp"
#include "core/kernels/standby_protocol.hpp"

#include <algorithm>
#include <cstdint>

namespace gpushm {
namespace {

constexpr bool is_least_in_traffic(const StandbyCosts &costs) {
    return costs.in_traffic.between_gpus <= costs.alone.between_gpus &&
           costs.in_traffic.within_gpu <= costs.alone.within_gpu &&
           costs.in_traffic.to_host <= costs.alone.to_host &&
           costs.in_traffic.from_host <= costs.alone.from_host;
}
static_assert(is_least_in_traffic(kBlockCosts) && is_least_in_traffic(kClusterCosts),
              "CopyEngine::give_to_standby() relies on it");
static_assert(kClusterCosts.alone.within_gpu <= kMaxStandbyBytes &&
                  kClusterCosts.managed <= kMaxStandbyBytes &&
                  kClusterCosts.alone.between_gpus <= kMaxStandbyElsewhere &&
                  kClusterCosts.alone.to_host <= kMaxStandbyElsewhere &&
                  kClusterCosts.alone.from_host <= kMaxStandbyElsewhere,
              "these are the largest");

/** The bits of all addresses and distances: the kernel copies in words that divide them. */
uintptr_t alignment_bits(const CopyJob &job) {
    auto bits =
        reinterpret_cast<uintptr_t>(job.destination) | reinterpret_cast<uintptr_t>(job.source);
    if (job.rows.count > 1) {
        bits |= job.length | job.rows.destination_pitch | job.rows.source_pitch;
    }
    return bits;
}

size_t limit_of_alignment(const CopyJob &job, size_t limit) {
    const uintptr_t bits = alignment_bits(job);
    return bits % 16 == 0  ? limit
           : bits % 8 == 0 ? limit / 2
           : bits % 4 == 0 ? limit / 4
                           : limit / 16;
}

/** Of rows, the kernel's first block has 2048 or 4096 words under way:
 * doc/decisions/standby-rows.md. */
size_t limit_of_rows(size_t aligned, const CopyJob &job) {
    constexpr size_t kMostOfNarrowWords = 16u << 10;
    return std::min<size_t>(
        aligned, alignment_bits(job) % 16 == 0 ? kStandbyMostRowBytes : kMostOfNarrowWords);
}

}  // namespace

/** A copy from the host is alone only if its whole message is: each piece of a message would
 * otherwise wait for an engine to start. */
size_t standby_limit(const CopyJob &job, const StandbyConditions &conditions) {
    const StandbyCosts &costs = conditions.is_cluster ? kClusterCosts : kBlockCosts;
    const bool is_alone = conditions.from_host ? job.urgent : conditions.idle;
    const StandbyLimits &limits = is_alone ? costs.alone : costs.in_traffic;
    const size_t limit = job.gpu_side.kind == MemoryKind::managed   ? costs.managed
                         : conditions.from_host                     ? limits.from_host
                         : job.direction == CopyDirection::from_gpu ? limits.to_host
                         : job.other_side == OtherSide::same_gpu    ? limits.within_gpu
                                                                    : limits.between_gpus;
    const size_t aligned = limit_of_alignment(job, limit);
    return job.rows.count > 1 ? limit_of_rows(aligned, job) : aligned;
}

}  // namespace gpushm
