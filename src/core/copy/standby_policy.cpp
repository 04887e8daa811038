// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/standby_policy.hpp"

#include <cstdint>

namespace gpushm {
namespace {

/** Where both sides are aligned to 16 bytes and the kernel uses its widest words. */
struct Limits {
    size_t between_gpus;
    size_t within_gpu;
    size_t to_host;
    size_t from_host;
};
struct Model {
    Limits alone;
    Limits in_traffic;  // several copies are under way, so that the bandwidth counts
    size_t managed;
};

// Measured: doc/decisions/copy-standby-limits.md.
constexpr Model kBlockModel = {{96u << 10, 96u << 10, 192u << 10, 96u << 10},
                               {64u << 10, 64u << 10, 64u << 10, 12u << 10},
                               128u << 10};
constexpr Model kClusterModel = {{768u << 10, 1u << 20, 768u << 10, 768u << 10},
                                 {256u << 10, 1u << 20, 64u << 10, 32u << 10},
                                 1u << 20};

constexpr bool is_least_in_traffic(const Model &model) {
    return model.in_traffic.between_gpus <= model.alone.between_gpus &&
           model.in_traffic.within_gpu <= model.alone.within_gpu &&
           model.in_traffic.to_host <= model.alone.to_host &&
           model.in_traffic.from_host <= model.alone.from_host;
}
static_assert(is_least_in_traffic(kBlockModel) && is_least_in_traffic(kClusterModel),
              "CopyEngine::give_to_standby() relies on it");
static_assert(kClusterModel.alone.within_gpu <= kMaxStandbyBytes &&
                  kClusterModel.managed <= kMaxStandbyBytes &&
                  kClusterModel.alone.between_gpus <= kMaxStandbyElsewhere &&
                  kClusterModel.alone.to_host <= kMaxStandbyElsewhere &&
                  kClusterModel.alone.from_host <= kMaxStandbyElsewhere,
              "these are the largest");

/** An address that is aligned less makes the kernel use narrower words. */
size_t limit_of_alignment(const CopyJob &job, size_t limit) {
    const auto bits =
        reinterpret_cast<uintptr_t>(job.destination) | reinterpret_cast<uintptr_t>(job.source);
    return bits % 16 == 0  ? limit
           : bits % 8 == 0 ? limit / 2
           : bits % 4 == 0 ? limit / 4
                           : limit / 16;
}

}  // namespace

/** A copy from the host is alone only if its whole message is: each piece of a message would
 * otherwise wait for an engine to start. */
size_t standby_limit(const CopyJob &job, const StandbyConditions &conditions) {
    const Model &model = conditions.is_cluster ? kClusterModel : kBlockModel;
    const bool is_alone = conditions.from_host ? job.urgent : conditions.idle;
    const Limits &limits = is_alone ? model.alone : model.in_traffic;
    const size_t limit = job.gpu_side.kind == MemoryKind::managed   ? model.managed
                         : conditions.from_host                     ? limits.from_host
                         : job.direction == CopyDirection::from_gpu ? limits.to_host
                         : job.other_side == OtherSide::same_gpu    ? limits.within_gpu
                                                                    : limits.between_gpus;
    return limit_of_alignment(job, limit);
}

}  // namespace gpushm
