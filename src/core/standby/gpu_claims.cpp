// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/gpu_claims.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"
#include "core/memory/buffer_key.hpp"

#include <cerrno>
#include <cstring>
#include <new>

namespace gpushm {
namespace {

constexpr const char *kPurpose = "standby";

Cookie name_of(CUdevice device) {
    return {device_identity(device), 0};
}

}  // namespace

GpuClaims &GpuClaims::instance() {
    return ForkSafe<GpuClaims>::instance();
}

/** A child that kept the claims would keep the GPUs from all others when the parent has ended. */
void GpuClaims::begin_in_child() {
    if (mutex_.try_lock()) {
        for (auto &[device, claim] : claims_) {
            claim.name = UniqueFd();  // not erased, which would need the heap's mutex
        }
    }
    new (this) GpuClaims;
}

/** Processes of all users count, since kernels of two users take turns by time slices, too. Any
 * process of the network namespace can bind the name, and so keep the kernel off, whether it uses
 * the GPU or not. A claim is believed all the same: without the kernel small messages lose some
 * microseconds, and a second kernel would cost all of them up to a time slice
 * (doc/decisions/standby-one-process.md). */
bool GpuClaims::claim(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Claim &claim = claims_[device];
    if (!claim.name && !claim.is_left) {
        claim.name = bind_abstract(kPurpose, name_of(device));
        if (!claim.name) {
            GPUSHM_LOG_ONCE(debug,
                            "another process has the standby kernel of a GPU, or no socket can be "
                            "made (%s): the copy engine copies small messages there; ss -xap shows "
                            "which process has @gpushm-standby-...",
                            strerror(errno));
        }
    }
    return bool(claim.name);
}

void GpuClaims::leave(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Claim &claim = claims_[device];
    claim.name = UniqueFd();
    claim.is_left = true;
}

bool GpuClaims::has(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bool(claims_[device].name);
}

bool GpuClaims::has_left(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return claims_[device].is_left;
}

bool GpuClaims::is_taken(CUdevice device) {
    return !has(device) && is_abstract_bound(kPurpose, name_of(device));
}

}  // namespace gpushm
