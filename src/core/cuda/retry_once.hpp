// SPDX-License-Identifier: BSD-3-Clause
// Calls of the driver that are tried again.
#pragma once

#include <cuda.h>

namespace gpushm {

/** CUDA_ERROR_NOT_READY is an answer to a query, not a failure. */
inline bool has_succeeded(CUresult result) {
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
}
inline bool has_succeeded(bool result) {
    return result;
}

/** What `function` returns, a CUresult or a bool. It is called again, once, if it fails: a driver
 * may be short of memory for a moment, and a message that fails ends most programs. */
template <typename Function>
auto retry_once(Function function) -> decltype(function()) {
    const auto result = function();
    return has_succeeded(result) ? result : function();
}

}  // namespace gpushm
