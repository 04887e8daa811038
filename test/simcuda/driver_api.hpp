// SPDX-License-Identifier: BSD-3-Clause
// The functions of libcuda.so.1 that the tests call, looked up at run time, whichever driver it is.
#pragma once

#include "cuda_declarations.hpp"

#include <cstddef>
#include <string>

// The macros of cuda.h turn each name into that of its present version, in the member, in its type
// and in the symbol that is looked up.
// clang-format off
#define SIMCUDA_TEST_FUNCTIONS(X)                                                                  \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuGetProcAddress)      \
    X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceTotalMem)   \
    X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId) X(cuDeviceGetByPCIBusId)                        \
    X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) X(cuDeviceGetDefaultMemPool)               \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxGetState)         \
    X(cuDevicePrimaryCtxReset)                                                                     \
    X(cuCtxDestroy) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxSetCurrent) X(cuCtxGetCurrent)   \
    X(cuCtxGetDevice) X(cuCtxGetId) X(cuCtxSynchronize) X(cuCtxGetStreamPriorityRange)             \
    X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess)                                             \
    X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemAllocManaged) X(cuMemFree) X(cuMemGetInfo)             \
    X(cuMemGetAddressRange) X(cuMemAllocHost) X(cuMemHostAlloc) X(cuMemFreeHost)                   \
    X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuMemHostGetFlags)  \
    X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle)                \
    X(cuIpcCloseMemHandle) X(cuMemRangeGetAttribute)                                               \
    X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuPointerSetAttribute)                    \
    X(cuMemcpy) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpyPeer) X(cuMemcpyAsync)   \
    X(cuMemcpy2D) X(cuMemcpy2DUnaligned) X(cuMemcpy2DAsync) X(cuMemcpy3D) X(cuMemcpy3DAsync)       \
    X(cuMemcpy3DPeer) X(cuArrayCreate) X(cuArray3DCreate) X(cuArrayDestroy)                        \
    X(cuMemcpyDtoA) X(cuMemcpyAtoD) X(cuMemcpyHtoA) X(cuMemcpyAtoH) X(cuMemcpyAtoA)                \
    X(cuMemcpyHtoAAsync) X(cuMemcpyAtoHAsync)                                                      \
    X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyPeerAsync)            \
    X(cuMemsetD8) X(cuMemsetD16) X(cuMemsetD32) X(cuMemsetD8Async) X(cuMemsetD32Async)             \
    X(cuMemsetD2D8) X(cuMemsetD2D16) X(cuMemsetD2D32)                                              \
    X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamQuery)            \
    X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamGetCtx) X(cuStreamGetFlags)              \
    X(cuStreamGetPriority) X(cuStreamGetId) X(cuStreamIsCapturing) X(cuStreamAddCallback)          \
    X(cuStreamWriteValue32) X(cuStreamWriteValue64) X(cuStreamWaitValue32)                         \
    X(cuStreamWaitValue64) X(cuLaunchHostFunc)                                                     \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventRecordWithFlags)                  \
    X(cuEventQuery) X(cuEventSynchronize)                                                          \
    X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve)         \
    X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess)              \
    X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)                              \
    X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle)                       \
    X(cuEventElapsedTime) X(cuThreadExchangeStreamCaptureMode) X(cuStreamBeginCapture)             \
    X(cuStreamEndCapture) X(cuGraphGetNodes) X(cuGraphDestroy) X(cuGraphInstantiateWithFlags)      \
    X(cuGraphLaunch) X(cuGraphExecDestroy)                                                         \
    X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction)             \
    X(cuModuleGetGlobal) X(cuLaunchKernel)
// clang-format on

struct DriverApi {
#define X(function) decltype(&::function) function = nullptr;
    SIMCUDA_TEST_FUNCTIONS(X)
#undef X
    // cuda.h of CUDA 13 does not declare the form without CUctxCreateParams.
    CUresult (*create_context)(CUcontext *, unsigned, CUdevice) = nullptr;
    // The forms of CUDA 12.8 and 13.0, null in older drivers. cuda.h declares one of them.
    CUresult (*copy_batch_12080)(CUdeviceptr *, CUdeviceptr *, std::size_t *, std::size_t,
                                 CUmemcpyAttributes *, std::size_t *, std::size_t, std::size_t *,
                                 CUstream) = nullptr;
    CUresult (*copy_batch)(CUdeviceptr *, CUdeviceptr *, std::size_t *, std::size_t,
                           CUmemcpyAttributes *, std::size_t *, std::size_t, CUstream) = nullptr;
    CUresult (*record_context)(CUcontext, CUevent) = nullptr;  // of CUDA 12.5
    // The form before CUDA 13.0.
    CUresult (*prefetch)(CUdeviceptr, std::size_t, CUdevice, CUstream) = nullptr;
    void *handle = nullptr;

    bool simulated() const;

    // One more of the driver's functions, null if it has none of that name.
    template <typename Function>
    Function *find(const std::string &symbol) const {
        return reinterpret_cast<Function *>(find_symbol(symbol));
    }
    void *find_symbol(const std::string &symbol) const;
};

// Opens libcuda.so.1 and looks all functions up. False, with the reason, if that fails.
bool load_driver(std::string *reason);

// Valid after load_driver.
const DriverApi &cu();
