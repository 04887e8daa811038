// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/gpu_sharing.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/fork_safe.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/standby/gpu_claims.hpp"

#include <new>

namespace gpushm {
namespace {

constexpr uint64_t kLookIntervalNs = 20'000'000;
/** A program that launches no kernel for so long does not compute. */
constexpr uint64_t kPauseNs = 1'000'000'000;

/** False where the driver is too old to say so, too. */
bool has_mps(CUdevice device) {
    constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);  // CUDA 12.4, cuda.h
    int enabled = 0;
    return CudaDriver::get()->device_get_attribute(&enabled, kMpsEnabled, device) == CUDA_SUCCESS &&
           enabled != 0;
}

}  // namespace

GpuSharing &GpuSharing::instance() {
    return ForkSafe<GpuSharing>::instance();
}

/** A child that kept the names would be taken for a user of the GPU. */
void GpuSharing::begin_in_child() {
    if (mutex_.try_lock()) {
        for (Gpu &gpu : gpus_) {
            gpu.user.forget();
            gpu.computing.forget();
        }
    }
    new (this) GpuSharing;
}

// ---------------------------------------------------------------- marks

bool GpuSharing::Mark::exchange(const char *purpose, uint64_t gpu, bool has_it) {
    if (!has_it) {
        forget();
    }
    bool others_have_it = false;
    for (size_t i = 0; i < names_.size(); ++i) {
        if (has_it && !holds_one()) {
            names_[i] = bind_abstract(purpose, {gpu, i});
        }
        others_have_it |= !names_[i] && is_abstract_bound(purpose, {gpu, i});
    }
    return others_have_it;
}

void GpuSharing::Mark::forget() {
    for (UniqueFd &name : names_) {
        name = UniqueFd();
    }
}

// ---------------------------------------------------------------- looks

/** Where launches are not hooked, no program computes. */
bool GpuSharing::computes(Gpu &gpu, uint64_t now) {
    const uint64_t launches = application_launches();
    if (launches != gpu.launches) {
        gpu.launches = launches;
        gpu.launched_at = now;
    }
    return gpu.launched_at != 0 && now - gpu.launched_at < kPauseNs;
}

void GpuSharing::look(Gpu &gpu, CUdevice device, uint64_t now) {
    const uint64_t identity = device_identity(device);
    const bool others_are_there = gpu.user.exchange("sharing", identity, true);
    gpu.others_compute = gpu.computing.exchange("computing", identity, computes(gpu, now));
    gpu.is_claimed = GpuClaims::instance().is_taken(device);
    gpu.others = gpu.others_compute || gpu.is_claimed ? Others::kernels
                 : others_are_there                   ? Others::present
                                                      : Others::none;
}

/** Null: a GPU that does not count. */
GpuSharing::Gpu *GpuSharing::find(CUdevice device) {
    return device >= 0 && static_cast<size_t>(device) < kMaxGpus
               ? &gpus_[static_cast<size_t>(device)]
               : nullptr;
}

void GpuSharing::use(CUdevice device) {
    Gpu *const gpu = find(device);
    if (gpu == nullptr || gpu->is_used.load(std::memory_order_acquire)) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gpu->is_used.load(std::memory_order_relaxed)) {
        return;
    }
    gpu->takes_turns = !has_mps(device);
    if (gpu->takes_turns) {
        const uint64_t now = monotonic_nanoseconds();
        gpu->launches = application_launches();
        look(*gpu, device, now);
        next_look_.store(now + kLookIntervalNs, std::memory_order_relaxed);
    }
    gpu->is_used.store(true, std::memory_order_release);
}

void GpuSharing::look_again() {
    const uint64_t due = next_look_.load(std::memory_order_relaxed);
    if (due == UINT64_MAX) {
        return;  // nobody uses a GPU
    }
    const uint64_t now = monotonic_nanoseconds();
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (now < due || !lock) {
        return;
    }
    next_look_.store(now + kLookIntervalNs, std::memory_order_relaxed);
    for (size_t device = 0; device < kMaxGpus; ++device) {
        Gpu &gpu = gpus_[device];
        if (gpu.is_used.load(std::memory_order_relaxed) && gpu.takes_turns) {
            look(gpu, static_cast<CUdevice>(device), now);
        }
    }
}

// ---------------------------------------------------------------- answers

GpuSharing::Others GpuSharing::others(CUdevice device) {
    use(device);
    const Gpu *const gpu = find(device);
    return gpu != nullptr ? gpu->others.load(std::memory_order_relaxed) : Others::none;
}

bool GpuSharing::others_compute(CUdevice device) {
    use(device);
    const Gpu *const gpu = find(device);
    return gpu != nullptr && gpu->others_compute.load(std::memory_order_relaxed);
}

bool GpuSharing::kernels_wait(CUdevice device) {
    const Others others = this->others(device);
    return others == Others::kernels ||
           (others == Others::present && !GpuClaims::instance().has(device));
}

bool GpuSharing::may_run_kernels(CUdevice device) {
    if (others(device) == Others::none) {
        return true;
    }
    Gpu &gpu = *find(device);
    if (gpu.is_claimed) {
        return false;
    }
    GpuClaims &claims = GpuClaims::instance();
    const bool may = claims.claim(device) || claims.has_left(device);
    gpu.is_claimed = !may;
    return may;
}

}  // namespace gpushm
