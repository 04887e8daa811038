// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/context_life.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"

namespace gpushm {

/** A driver that says that the context has ended may mean the previous owner of the handle: it is
 * asked again. */
bool ContextLife::identify(CUcontext handle) {
    epoch_ = context_epoch();  // before the driver is asked
    const CudaDriver *driver = CudaDriver::get();
    const CUresult result = driver->query_context_id(handle, &id_);
    return result == CUDA_SUCCESS ||
           (context_has_ended(result) && driver->query_context_id(handle, &id_) == CUDA_SUCCESS);
}

ContextLife::State ContextLife::look(CUcontext handle) {
    const uint64_t epoch = context_epoch();  // before the driver is asked
    if (contexts_are_watched() && epoch_ == epoch) {
        return State::alive;
    }
    unsigned long long id = 0;
    const CUresult result = CudaDriver::get()->query_context_id(handle, &id);
    if (result == CUDA_SUCCESS && id == id_) {
        epoch_ = epoch;
        return State::alive;
    }
    return result == CUDA_SUCCESS || context_has_ended(result) ? State::ended : State::unknown;
}

}  // namespace gpushm
