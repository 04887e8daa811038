// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/gpu_sharing.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/fork_safe.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/standby/gpu_claims.hpp"

#include <cerrno>
#include <new>
#include <utility>

namespace gpushm {
namespace {

constexpr uint64_t kLookIntervalNs = 20'000'000;
/** A program that launches no kernel for so long does not compute. */
constexpr uint64_t kPauseNs = 1'000'000'000;

}  // namespace

GpuSharing &GpuSharing::instance() {
    return ForkSafe<GpuSharing>::instance();
}

/** A child that kept the names would be taken for a user of the GPU. */
void GpuSharing::begin_in_child() {
    if (mutex_.try_lock()) {
        for (auto &[device, gpu] : gpus_) {
            gpu.user.forget();  // not erased, which would need the heap's mutex
            gpu.computing.forget();
        }
    }
    new (this) GpuSharing;
}

// ---------------------------------------------------------------- marks

/** A name that is free is bound to find that out. Another process that looks at the same moment
 * takes it for taken, until it looks again. */
bool GpuSharing::Mark::exchange(uint64_t gpu, bool has_it) {
    bool others_have_it = false;
    for (size_t i = 0; i < names_.size(); ++i) {
        if (names_[i]) {
            continue;
        }
        UniqueFd name = bind_abstract(purpose_, {gpu, i});
        if (!name) {
            others_have_it |= errno == EADDRINUSE;
        } else if (has_it && !holds_one()) {
            names_[i] = std::move(name);
        }
    }
    if (!has_it) {
        forget();
    }
    return others_have_it;
}

void GpuSharing::Mark::forget() {
    for (UniqueFd &name : names_) {
        name = UniqueFd();
    }
}

// ---------------------------------------------------------------- the others

/** Where launches are not hooked, no program computes. */
bool GpuSharing::computes(Gpu &gpu, uint64_t now) {
    const uint64_t launches = application_launches();
    if (launches != gpu.launches) {
        gpu.launches = launches;
        gpu.launched_at = now;
    }
    return gpu.launched_at != 0 && now - gpu.launched_at < kPauseNs;
}

/** Asks the system if the last answer is too old. */
GpuSharing::Gpu &GpuSharing::look(CUdevice device) {
    const uint64_t now = monotonic_nanoseconds();
    Gpu &gpu = gpus_[device];
    if (now < gpu.next_look) {
        return gpu;
    }
    gpu.next_look = now + kLookIntervalNs;
    const uint64_t identity = device_identity(device);
    const bool others_are_there = gpu.user.exchange(identity, true);
    const bool others_compute = gpu.computing.exchange(identity, computes(gpu, now));
    gpu.is_claimed = GpuClaims::instance().is_taken(device);
    gpu.others = !others_are_there                  ? Others::none
                 : others_compute || gpu.is_claimed ? Others::kernels
                                                    : Others::present;
    return gpu;
}

GpuSharing::Others GpuSharing::others(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return look(device).others;
}

bool GpuSharing::may_run_kernels(CUdevice device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Gpu &gpu = look(device);
    return gpu.others == Others::none || (!gpu.is_claimed && GpuClaims::instance().claim(device));
}

}  // namespace gpushm
