// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/context_choice.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/reclaim/kernel_preload.hpp"

namespace gpushm {

ContextChoice::~ContextChoice() {
    for (const auto &primary : primary_contexts_) {
        CudaDriver::get()->device_primary_ctx_release(primary.first);
    }
}

CUcontext ContextChoice::context_of(const MemoryInfo &gpu_side) {
    if (gpu_side.context != nullptr) {
        return gpu_side.context;
    }
    const auto known = primary_contexts_.find(gpu_side.device);
    if (known != primary_contexts_.end()) {
        return known->second;
    }
    CUcontext context = nullptr;
    const bool retained = retry_once([&] {
        context = retain_for_copies(gpu_side.device);
        return context != nullptr;
    });
    if (retained) {
        primary_contexts_[gpu_side.device] = context;
    }
    return context;
}

CUcontext ContextChoice::context_near(uint64_t device) {
    const auto known = near_contexts_.find(device);
    if (known != near_contexts_.end() &&
        known->second.life.look(known->second.handle) == ContextLife::State::alive) {
        return known->second.handle;
    }
    Near found;
    found.handle = find_near(device);
    if (found.handle == nullptr || !found.life.identify(found.handle)) {
        near_contexts_.erase(device);
        return nullptr;
    }
    near_contexts_[device] = found;
    return found.handle;
}

/** The context may have ended: the current one of a thread can be dead. */
CUcontext ContextChoice::find_near(uint64_t device_wanted) {
    const CudaDriver *driver = CudaDriver::get();
    int count = 0;
    if (driver->device_get_count(&count) != CUDA_SUCCESS) {
        count = 0;
    }
    CUcontext found = nullptr;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device = 0;
        if (driver->device_get(&device, ordinal) == CUDA_SUCCESS &&
            driver->primary_context_is_active(device).value_or(false) &&
            (found == nullptr || device_identity(device) == device_wanted)) {
            MemoryInfo info;
            info.device = device;
            found = context_of(info);
        }
    }
    if (found == nullptr) {
        driver->ctx_get_current(&found);
    }
    return found;
}

}  // namespace gpushm
