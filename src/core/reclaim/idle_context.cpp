// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/idle_context.hpp"

#include "core/base/monotonic_clock.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/stream_captures.hpp"
#include "core/standby/standby_registry.hpp"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <mutex>
#include <new>

namespace gpushm {
namespace {

std::atomic<unsigned> ends{0};   // EndOfContext
std::atomic<unsigned> lasts{0};  // ContextsLast

/** Never destroyed. As Background: a child may be forked while another thread holds it. */
std::recursive_mutex *const contexts = [] {
    static auto *made = new std::recursive_mutex;
    pthread_atfork(nullptr, nullptr, [] {
        new (made) std::recursive_mutex;
        ends = 0;
        lasts = 0;
    });
    return made;
}();

/** False: one is about to end. Either this thread sees that, or that one sees this thread. */
bool make_last() {
    lasts.fetch_add(1);
    const bool last = ends.load() == 0;
    if (!last) {
        lasts.fetch_sub(1);
    }
    return last;
}

}  // namespace

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

bool work_is_known() {
    return contexts_are_watched() && stream_captures_are_known() &&
           CudaDriver::get()->ctx_record_event != nullptr;
}

bool free_of_work(CUcontext context, unsigned long long id) {
    constexpr uint64_t kProofNs = 100'000;  // an event of an idle context takes 10 us
    const NoEndOfContext lives;
    if (!lives || memory_is_ending()) {
        return false;
    }
    if (!CudaDriver::get()->context_is_alive(context, id)) {
        return true;
    }
    const StandbyKernels::Absence no_kernel;
    const CapturePause pause;
    // Kernels of other contexts, too, may read page-locked memory ahead, until they leave.
    return no_kernel.complete() && pause.none() && context_is_idle(context, kProofNs);
}

EndOfContext::EndOfContext() {
    constexpr uint64_t kPatienceNs = 500'000'000;
    contexts->lock();
    ends.fetch_add(1);
    const uint64_t end = monotonic_nanoseconds() + kPatienceNs;
    while (lasts.load() != 0 && monotonic_nanoseconds() < end) {
        sched_yield();
    }
}

EndOfContext::~EndOfContext() {
    ends.fetch_sub(1);
    contexts->unlock();
}

NoEndOfContext::NoEndOfContext() : has_(contexts->try_lock()) {}

NoEndOfContext::~NoEndOfContext() {
    if (has_) {
        contexts->unlock();
    }
}

ContextsLast::ContextsLast() : last_(make_last()) {}

ContextsLast::~ContextsLast() {
    if (last_) {
        lasts.fetch_sub(1);
    }
}

}  // namespace gpushm
