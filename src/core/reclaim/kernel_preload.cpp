// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/kernel_preload.hpp"

#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/reclaim/context_in_use.hpp"
#include "core/reclaim/quiescence.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "core/standby/standby_registry.hpp"

#include <atomic>
#include <cstdint>

namespace gpushm {
namespace {

std::atomic<bool> wanted{false};

// A bit for each device whose primary context only retain_for_copies() has retained.
std::atomic<uint64_t> only_for_copies{0};
thread_local bool retaining_for_copies = false;

uint64_t bit_of(CUdevice device) {
    return device >= 0 && device < 64 ? uint64_t{1} << device : 0;
}

/** The application uses the primary context of a device. Other processes there learn that before
 * the first message. */
void note_use(CUcontext context, CUdevice device) {
    note_context_in_use(context);
    GpuSharing::instance().use(device);
}

void load(CUcontext context) {
    KernelCodes::instance().load(context, CudaDriver::get()->context_id(context));
    StandbyKernels::instance().prepare(context);
}

void load_if_idle(const CudaDriver *driver, CUcontext context) {
    constexpr uint64_t kProofNs =
        1'000'000;  // an event of an idle context takes less, even a new one
    if (KernelCodes::instance().find(context, driver->context_id(context)) != nullptr) {
        return;
    }
    if (driver->ctx_record_event == nullptr || context_is_idle(context, kProofNs)) {
        load(context);
    } else {
        GPUSHM_LOG(debug, "the GPU is busy while UCX starts: no kernels are loaded");
    }
}

/** The retained primary context of a device that the application uses. */
void load_into_primary(const CudaDriver *driver, CUdevice device) {
    CUcontext context = nullptr;
    if (!driver->primary_context_is_active(device).value_or(false) ||
        (only_for_copies.load() & bit_of(device)) != 0 ||
        driver->device_primary_ctx_retain(&context, device) != CUDA_SUCCESS) {
        return;
    }
    note_use(context, device);
    if (KernelCodes::possible()) {
        load_if_idle(driver, context);
    }
    driver->device_primary_ctx_release(device);
}

}  // namespace

void preload_kernels(CUcontext context) {
    if (wanted.load(std::memory_order_relaxed) && KernelCodes::possible()) {
        load(context);
    }
}

void preload_kernels_everywhere() {
    const CudaDriver *driver = CudaDriver::get();
    wanted.store(true, std::memory_order_relaxed);
    int count = 0;
    if (driver == nullptr || driver->device_get_count(&count) != CUDA_SUCCESS) {
        return;
    }
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device = 0;
        if (driver->device_get(&device, ordinal) == CUDA_SUCCESS) {
            load_into_primary(driver, device);
        }
    }
}

CUcontext retain_for_copies(CUdevice device) {
    const CudaDriver *driver = CudaDriver::get();
    const bool was_in_use = driver->primary_context_is_active(device).value_or(true);
    CUcontext context = nullptr;
    retaining_for_copies = true;
    const CUresult result = driver->device_primary_ctx_retain(&context, device);
    retaining_for_copies = false;
    if (result == CUDA_SUCCESS && !was_in_use) {
        only_for_copies.fetch_or(bit_of(device));
    }
    return result == CUDA_SUCCESS ? context : nullptr;
}

void note_retained(CUdevice device, CUcontext context, bool was_in_use) {
    if (retaining_for_copies) {
        return;
    }
    note_use(context, device);
    const bool was_for_copies = (only_for_copies.fetch_and(~bit_of(device)) & bit_of(device)) != 0;
    if (!was_in_use || was_for_copies) {
        preload_kernels(context);
    }
}

}  // namespace gpushm
