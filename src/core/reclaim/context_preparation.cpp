// SPDX-License-Identifier: BSD-3-Clause
// Loads our kernels into contexts at moments when that holds up nobody.
#include "core/reclaim/context_preparation.hpp"

#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/reclaim/idle_context.hpp"
#include "core/standby/standby_registry.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

namespace gpushm {
namespace {

std::atomic<bool> wanted{false};

struct Used {
    std::mutex mutex;
    std::optional<ContextInUse> context;  // guarded by it
};

/** Never destroyed. In a forked child, which cannot use the driver, no context is in use. */
Used *const used = [] {
    static Used *made = new Used;
    pthread_atfork(nullptr, nullptr, [] { new (made) Used; });
    return made;
}();

// Of devices whose primary context nobody has retained but retain_for_copies(): a bit each.
std::atomic<uint64_t> only_for_copies{0};
thread_local bool retaining_for_copies = false;

uint64_t bit_of(CUdevice device) {
    return device >= 0 && device < 64 ? uint64_t{1} << device : 0;
}

void prepare(CUcontext context) {
    KernelCodes::instance().load(context, CudaDriver::get()->context_id(context));
    StandbyKernels::instance().prepare(context);
}

// In which an event of an idle context is over, be it new.
constexpr uint64_t kIdleProofNs = 1'000'000;

void prepare_if_idle(const CudaDriver *driver, CUcontext context) {
    if (KernelCodes::instance().find(context, driver->context_id(context)) != nullptr) {
        return;
    }
    if (driver->ctx_record_event == nullptr || context_is_idle(context, kIdleProofNs)) {
        prepare(context);
    } else {
        GPUSHM_LOG(debug, "the GPU is at work while UCX starts: no kernels");
    }
}

}  // namespace

std::optional<ContextInUse> context_in_use() {
    const std::lock_guard<std::mutex> lock(used->mutex);
    return used->context;
}

void note_context_in_use(CUcontext context) {
    const CudaDriver *driver = CudaDriver::get();
    const std::lock_guard<std::mutex> lock(used->mutex);
    if (!used->context || !driver->context_is_alive(used->context->context, used->context->id)) {
        used->context = ContextInUse{context, driver->context_id(context)};
    }
}

void prepare_context(CUcontext context) {
    if (wanted.load(std::memory_order_relaxed) && KernelCodes::possible()) {
        prepare(context);
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
    note_context_in_use(context);
    const bool was_for_copies = (only_for_copies.fetch_and(~bit_of(device)) & bit_of(device)) != 0;
    if (!was_in_use || was_for_copies) {
        prepare_context(context);
    }
}

void prepare_contexts() {
    const CudaDriver *driver = CudaDriver::get();
    wanted.store(true, std::memory_order_relaxed);
    int count = 0;
    if (driver == nullptr || driver->device_get_count(&count) != CUDA_SUCCESS) {
        return;
    }
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device = 0;
        CUcontext context = nullptr;
        if (driver->device_get(&device, ordinal) == CUDA_SUCCESS &&
            driver->primary_context_is_active(device).value_or(false) &&
            (only_for_copies.load() & bit_of(device)) == 0 &&
            driver->device_primary_ctx_retain(&context, device) == CUDA_SUCCESS) {
            note_context_in_use(context);
            if (KernelCodes::possible()) {
                prepare_if_idle(driver, context);
            }
            driver->device_primary_ctx_release(device);
        }
    }
}

}  // namespace gpushm
