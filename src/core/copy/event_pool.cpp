// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/event_pool.hpp"

#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"

namespace gpushm {

CUevent EventPool::take() {
    CUevent event = nullptr;
    if (!free_.empty()) {
        event = free_.back();
        free_.pop_back();
        return event;
    }
    const bool made = retry_once([&] {
        const CudaDriver *driver = CudaDriver::get();
        CurrentContext current(driver, context_, id_);
        return current.result() == CUDA_SUCCESS &&
               driver->event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    });
    return made ? event : nullptr;
}

/** Where memory is short the event is lost. */
void EventPool::give_back(CUevent event) {
    if (event != nullptr) {
        as_possible([&] { free_.push_back(event); });
    }
}

void EventPool::destroy() {
    for (CUevent event : free_) {
        CudaDriver::get()->event_destroy(event);
    }
    free_.clear();
}

}  // namespace gpushm
