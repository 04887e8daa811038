// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/quiescence.hpp"

#include "core/base/monotonic_clock.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/stream_captures.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/standby/standby_registry.hpp"

namespace gpushm {

bool context_is_idle(CUcontext context, uint64_t proof_ns) {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context);
    CUevent event = nullptr;
    if (driver->ctx_record_event == nullptr || current.result() != CUDA_SUCCESS ||
        driver->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return false;
    }
    CUresult result = driver->ctx_record_event(context, event);
    if (result == CUDA_SUCCESS) {
        const uint64_t end = monotonic_nanoseconds() + proof_ns;
        while ((result = driver->event_query(event)) == CUDA_ERROR_NOT_READY &&
               monotonic_nanoseconds() < end) {
        }
    }
    driver->event_destroy(event);
    return result == CUDA_SUCCESS;
}

bool quiescence_is_known() {
    return contexts_are_watched() && stream_captures_are_known() &&
           CudaDriver::get()->ctx_record_event != nullptr;
}

bool is_quiescent(CUcontext context, unsigned long long id) {
    constexpr uint64_t kProofNs = 100'000;  // an event of an idle context takes 10 us
    const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
    if (!alive || memory_is_ending()) {
        return false;
    }
    if (!CudaDriver::get()->context_is_alive(context, id)) {
        return true;
    }
    const StandbyKernels::Absence no_kernel;
    const CapturePause pause;
    // Kernels of other contexts, too, may prefetch page-locked memory until they leave.
    return no_kernel.complete() && pause.none() && context_is_idle(context, kProofNs);
}

}  // namespace gpushm
