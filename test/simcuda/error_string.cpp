// SPDX-License-Identifier: BSD-3-Clause
// Names and descriptions of error codes.
#include "call.hpp"

namespace simcuda {

namespace {

struct ErrorText {
    CUresult code;
    const char *name;
    const char *text;
};

#define SIMCUDA_ERROR(code, text) \
    { code, #code, text }

// Those that the simulation returns, and some that tests inject.
constexpr ErrorText kErrors[] = {
    SIMCUDA_ERROR(CUDA_SUCCESS, "no error"),
    SIMCUDA_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SIMCUDA_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SIMCUDA_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SIMCUDA_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    SIMCUDA_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE,
                  "CUDA-capable device(s) is/are busy or unavailable"),
    SIMCUDA_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SIMCUDA_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SIMCUDA_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    SIMCUDA_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    SIMCUDA_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    SIMCUDA_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    SIMCUDA_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                  "peer access is not supported between these two devices"),
    SIMCUDA_ERROR(CUDA_ERROR_OPERATING_SYSTEM,
                  "OS call failed or operation not supported on this OS"),
    SIMCUDA_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SIMCUDA_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SIMCUDA_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    SIMCUDA_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    SIMCUDA_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    SIMCUDA_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    SIMCUDA_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    SIMCUDA_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                  "part or all of the requested memory range is already mapped"),
    SIMCUDA_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                  "pointer does not correspond to a registered memory region"),
    SIMCUDA_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SIMCUDA_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    SIMCUDA_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  "operation not permitted when stream is capturing"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                  "operation failed due to a previous error during capture"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
                  "operation would result in a merge of separate capture sequences"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                  "capture was not ended in the same stream as it began"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                  "dependency created on uncaptured work in another stream"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  "operation would make the legacy stream depend on a capturing blocking stream"),
    SIMCUDA_ERROR(CUDA_ERROR_CAPTURED_EVENT,
                  "operation not permitted on an event last recorded in a capturing stream"),
    SIMCUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                  "attempt to terminate a thread-local capture sequence from another thread"),
    SIMCUDA_ERROR(CUDA_ERROR_ILLEGAL_STATE,
                  "the operation cannot be performed in the present state"),
    SIMCUDA_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

#undef SIMCUDA_ERROR

CUresult get_text(CUresult code, const char **text, const char *ErrorText::*which) {
    if (text == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = nullptr;
    for (const ErrorText &error : kErrors) {
        if (error.code == code) {
            *text = error.*which;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuGetErrorName(CUresult code, const char **name) {
    static Call call{"cuGetErrorName"};
    return call.always([&] { return get_text(code, name, &ErrorText::name); });
}

extern "C" CUresult cuGetErrorString(CUresult code, const char **text) {
    static Call call{"cuGetErrorString"};
    return call.always([&] { return get_text(code, text, &ErrorText::text); });
}
