// SPDX-License-Identifier: BSD-3-Clause
// Calls of the driver for streams and events of a context that need not be the current one.
#pragma once

#include "core/cuda/cuda_driver.hpp"

#include <cstddef>

namespace gpushm {

/** Calls `function`, and again in the context `handle` if it fails in another one. Drivers differ
 * in whether functions of streams and events need a context, and memory of pools is copied only in
 * its own context (driver 580). `id` is CudaDriver::context_id(), for the context may have ended.
 */
template <typename Function>
CUresult in_context(CUcontext handle, unsigned long long id, Function function) {
    const CUresult result = function();
    CUcontext current = nullptr;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ||
        (CudaDriver::get()->ctx_get_current(&current) == CUDA_SUCCESS && current == handle)) {
        return result;
    }
    CurrentContext entered(CudaDriver::get(), handle, id);
    return entered.result() == CUDA_SUCCESS ? function() : entered.result();
}

/** What an event says of the work before it in the stream. The stream is asked where the event is
 * null or cannot be asked. */
CUresult query_event(CUcontext handle, unsigned long long id, CUevent event, CUstream stream);

/** Polls until all that was given to the stream has ended, and returns how. */
CUresult wait_for_stream(CUcontext handle, unsigned long long id, CUstream stream);

/** Logs one error line: the driver function `what` failed for a copy of `length` bytes. */
void log_copy_failure(const char *what, size_t length, CUresult result);

}  // namespace gpushm
