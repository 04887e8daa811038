// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks call of the CUDA driver, taken from libcuda.so.1 at run time: the same
// program runs with the real driver, with a simulated one and, for host memory, without any.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

namespace gpushm::perf {

// The macros of cuda.h turn each name into that of its present version, in the member, in its type
// and in the symbol that is looked up.
// clang-format off
#define GPUSHM_PERF_REQUIRED_FUNCTIONS(X)                                                          \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName)                                              \
    X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute)                  \
    X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuCtxSynchronize)           \
    X(cuMemAlloc) X(cuMemAllocManaged) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost)             \
    X(cuMemHostRegister) X(cuMemHostUnregister)                                                    \
    X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle)                              \
    X(cuMemcpy) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpy2D) X(cuMemsetD8)        \
    X(cuPointerGetAttribute)                                                                       \
    X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync)                                 \
    X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery)                   \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)      \
    X(cuModuleLoadData) X(cuModuleGetFunction) X(cuModuleUnload) X(cuLaunchKernel)                 \
    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags)                   \
    X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy)
// clang-format on

// Null where the driver has none, members only where the cuda.h of the build has them.
#if CUDA_VERSION >= 12080
#define GPUSHM_PERF_NEWER_FUNCTIONS(X) X(cuMemcpyBatchAsync)
#else
#define GPUSHM_PERF_NEWER_FUNCTIONS(X)
#endif
// clang-format off
#define GPUSHM_PERF_OPTIONAL_FUNCTIONS(X)                                                          \
    X(cuMemPrefetchAsync) GPUSHM_PERF_NEWER_FUNCTIONS(X)                                           \
    X(cuMemAllocAsync) X(cuMemFreeAsync)                                                           \
    X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve)         \
    X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                                \
    X(cuLaunchCooperativeKernel) X(cuOccupancyMaxActiveBlocksPerMultiprocessor)
// clang-format on

inline CUdeviceptr device_pointer(const void *address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

/** The functions as members, e.g. driver.cuMemAlloc(&address, size). One process, any thread. */
class Driver {
public:
    /** Opens and initialises the driver. Null when there is no driver or no device; `*reason` then
     * says why. */
    static std::unique_ptr<Driver> open(std::string *reason);

    /** E.g. "CUDA driver 13.0, 2 devices, NVIDIA H200". */
    std::string description() const;

    /** Whether it is the simulated driver, whose times mean nothing. */
    bool simulated() const { return simulated_; }

    int device_count() const { return device_count_; }
    std::string device_name(int ordinal) const;

    /** Whether the driver counts the calls that this process makes, gpushm's and UCX's included;
     * the simulated one and test/ucp/failing do. */
    bool counts_calls() const { return call_count_ != nullptr; }
    /** Without questions whether something has ended, and what goes with them: their number is a
     * matter of time. */
    unsigned long calls() const {
        return call_count_("") - call_count_("cuStreamQuery") - call_count_("cuEventQuery") -
               call_count_("cuThreadExchangeStreamCaptureMode");
    }

    /** Makes the primary context of a device current to the calling thread. */
    void use_device(int ordinal) const;

    /** Throws std::runtime_error unless `result` is success. */
    void require(CUresult result, const char *what) const;

#define X(function) decltype(&::function) function = nullptr;
    GPUSHM_PERF_REQUIRED_FUNCTIONS(X)
    GPUSHM_PERF_OPTIONAL_FUNCTIONS(X)
#undef X

private:
    Driver() = default;
    bool look_up(void *library, std::string *reason);

    bool simulated_ = false;
    int device_count_ = 0;
    unsigned long (*call_count_)(const char *function) = nullptr;
};

}  // namespace gpushm::perf
