// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/stream_calls.hpp"

#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"

namespace gpushm {

CUresult query_event(CUcontext handle, unsigned long long id, CUevent event, CUstream stream) {
    const CudaDriver *driver = CudaDriver::get();
    if (event != nullptr) {
        const CUresult result = in_context(handle, id, [&] { return driver->event_query(event); });
        if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
            return result;
        }
    }
    return retry_once(
        [&] { return in_context(handle, id, [&] { return driver->stream_query(stream); }); });
}

CUresult wait_for_stream(CUcontext handle, unsigned long long id, CUstream stream) {
    const CudaDriver *driver = CudaDriver::get();
    CUresult result = CUDA_SUCCESS;
    do {
        result = in_context(handle, id, [&] { return driver->stream_query(stream); });
    } while (result == CUDA_ERROR_NOT_READY);
    if (result != CUDA_SUCCESS) {
        // The driver does not say whether the work runs. Behind this call it runs no more.
        result = in_context(handle, id, [&] { return driver->stream_synchronize(stream); });
    }
    return result;
}

void log_copy_failure(const char *what, size_t length, CUresult result) {
    GPUSHM_LOG(error,
               "%s failed for a GPU copy of %zu bytes (%s): see whether the application freed "
               "the buffer too early or a kernel faulted (compute-sanitizer)",
               what, length, CudaDriver::get()->error_name(result));
}

}  // namespace gpushm
