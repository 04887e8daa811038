// SPDX-License-Identifier: BSD-3-Clause
// The functions of the CUDA driver that the tests of GPU memory call themselves. Whichever
// libcuda.so.1 the dynamic linker finds is used; the tests do not ask which one that is, only which
// functions it has.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace gpushm::ucp_test {

// What every driver has.
// clang-format off
#define GPUSHM_TEST_CUDA_FUNCTIONS(X)                                                             \
    X(cuInit) X(cuGetErrorName) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDevicePrimaryCtxRetain)    \
    X(cuDeviceGetAttribute) X(cuCtxGetDevice)                                                     \
    X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset) X(cuCtxGetCurrent) X(cuCtxSetCurrent) \
    X(cuCtxSynchronize) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemAllocManaged) X(cuMemFree)           \
    X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostRegister) X(cuMemHostUnregister)                \
    X(cuMemcpy) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoHAsync) X(cuMemcpyAsync)             \
    X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery)                  \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)                           \
    X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle)                             \
    X(cuPointerGetAttribute)
// clang-format on

// What a test asks for before it calls it; null where the driver does not have it.
// clang-format off
#define GPUSHM_TEST_CUDA_OPTIONAL(X)                                                              \
    X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve)    \
    X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                               \
    X(cuMemGetAllocationGranularity) X(cuLaunchHostFunc) X(cuModuleLoadData)                      \
    X(cuModuleGetFunction) X(cuLaunchKernel) X(cuStreamBeginCapture) X(cuStreamEndCapture)        \
    X(cuStreamIsCapturing) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphDestroy)      \
    X(cuGraphExecDestroy) X(cuGraphGetNodes) X(cuMemHostGetDevicePointer)                         \
    X(cuDeviceCanAccessPeer)
// clang-format on

/** The members have the names of the functions in cuda.h, in the versions of that header. */
struct CudaApi {
#define GPUSHM_TEST_DECLARE(function) decltype(&::function) function##_;
    GPUSHM_TEST_CUDA_FUNCTIONS(GPUSHM_TEST_DECLARE)
    GPUSHM_TEST_CUDA_OPTIONAL(GPUSHM_TEST_DECLARE)
#undef GPUSHM_TEST_DECLARE
    // The version before CUDA 13's, which cuda.h no longer declares; the driver keeps it.
    CUresult (*prefetch)(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
};

/** The driver, initialised. Ends the test as skipped when there is none or it has no device. */
const CudaApi &cuda();

int device_count();

/** The primary context of the device, which is retained until the process ends. */
CUcontext primary_context(int device);

/** Makes the primary context of a device current to the calling thread. */
void use_device(int device);

/** cudaDeviceReset: destroys the primary context with all that is in it. None is current then. */
void reset_device(int device);

/** Fails the test with the error's name, unless the call succeeded. */
void require(CUresult result, const char *what);

/** Blocking, also for pageable memory; between any two kinds of memory. */
void copy_by_driver(void *to, const void *from, size_t bytes);

/** A control of a driver that counts its calls and makes them fail (simcuda.h); null in others. */
void *driver_control(const char *symbol);
/** Whether the driver counts calls, and those of a function by this process. */
bool counts_calls();
unsigned long calls_of(const char *function);

inline CUdeviceptr device_address(const void *memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
}

}  // namespace gpushm::ucp_test
