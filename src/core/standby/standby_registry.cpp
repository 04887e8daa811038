// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/standby_registry.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/standby/gpu_claims.hpp"

#include <new>

namespace gpushm {
namespace {

/** Whether the processor reads and writes StandbyUnit over PCIe in one piece: true of x86. */
constexpr bool processor_stores_units_whole() {
#ifdef __x86_64__
    return true;
#else
    return false;
#endif
}

// This thread is within tend_all(), and has the mutex.
thread_local bool tending = false;

}  // namespace

StandbyKernels &StandbyKernels::instance() {
    return ForkSafe<StandbyKernels>::instance();
}

void StandbyKernels::begin_in_child() {
    StandbyDemand::instance().begin_anew();
    new (this) StandbyKernels;
}

void StandbyKernels::configure(const StandbyConfig &config) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!configured_) {
        configured_ = true;
        config_ = config;
    }
}

bool StandbyKernels::possible() const {
    return config_.mode != StandbyConfig::Mode::off && KernelCodes::possible() &&
           processor_stores_units_whole() && !launches_are_synchronous();
}

void StandbyKernels::prepare(CUcontext context) {
    std::shared_ptr<StandbyKernel> kernel;
    // Destroyed without the mutex: their driver calls wait for an Absence.
    ByContext<StandbyKernel> ended;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!possible()) {
            return;
        }
        ended = take_ended(kernels_);
        const unsigned long long id = CudaDriver::get()->context_id(context);
        if (kernels_.find({context, id}) != kernels_.end()) {
            return;
        }
        kernel = std::make_shared<StandbyKernel>(context, id, config_);
        kernels_[{context, id}] = kernel;
    }
    kernel->load();
}

std::shared_ptr<StandbyKernel> StandbyKernels::find(CUcontext context, unsigned long long id) {
    std::lock_guard<std::mutex> lock(mutex_);
    return find_object(kernels_, context, id);
}

void StandbyKernels::tend_all(StandbyKernel::Moment moment) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) {
        return;  // another thread does it
    }
    const uint64_t now = monotonic_nanoseconds();
    const bool may_launch = !StandbyDemand::instance().has_absence();
    bool wanted = false;
    tending = true;
    for (const auto &entry : kernels_) {
        wanted |= entry.second->tend(moment, may_launch, now);
    }
    tending = false;
    StandbyDemand::instance().set_wanted(wanted);
}

void StandbyKernels::leave_to_peer(CUcontext context, CUdevice device) {
    GpuClaims::instance().leave(device);
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &[key, kernel] : kernels_) {
        if (key.first == context) {
            kernel->retire();
            StandbyDemand::instance().want();  // until it has left
        }
    }
}

/** Whether all kernels have left. Within tend_all(), which launches kernels, it is a tool's
 * callback that calls the driver: this thread has the mutex. */
bool StandbyKernels::begin_absence(uint64_t patience_ns) {
    StandbyDemand::instance().begin_absence();
    if (!StandbyDemand::instance().wanted()) {
        return true;
    }
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (!tending) {
        lock.lock();
    }
    for (const auto &entry : kernels_) {
        entry.second->dismiss();
    }
    // Some calls of the driver take longer beside a kernel that is leaving than this wait:
    // doc/decisions/standby-device-code.md.
    const uint64_t end = monotonic_nanoseconds() + patience_ns;
    bool complete = true;
    for (const auto &entry : kernels_) {
        while (entry.second->is_there() && monotonic_nanoseconds() < end) {
        }
        if (entry.second->is_there()) {
            entry.second->look_whether_killed();
        }
        complete &= !entry.second->is_there();
    }
    return complete;
}

void StandbyKernels::log_use() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &entry : kernels_) {
        entry.second->log_use();
    }
}

}  // namespace gpushm
