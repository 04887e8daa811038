// SPDX-License-Identifier: BSD-3-Clause
// Functions that begin as those of the real driver do (seen in 580): programs change the first
// instructions of the ones by which memory comes and goes, and of copies, to be told of it.
#pragma once

#include <cuda.h>

#include <cstddef>

// What the source calls cuX has this name in the library; cuX itself is in entry_points.cpp.
#define SIMCUDA_BODY(function) __asm__("body_of_" #function)

// Names of today, whatever cuda.h makes of them.
#define SIMCUDA_ENTRY_POINTS(X)                                                                    \
    X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemAllocAsync)                 \
    X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemFree_v2) X(cuMemFreeHost)                  \
    X(cuMemHostRegister_v2) X(cuMemHostUnregister)                                                 \
    X(cuMemMap) X(cuMemUnmap) X(cuIpcCloseMemHandle) X(cuCtxDestroy_v2)                            \
    X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxRelease_v2)                                   \
    X(cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxReset_v2)                         \
    X(cuDevicePrimaryCtxRetain) X(cuCtxSynchronize) X(cuModuleUnload)                              \
    X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuStreamDestroy_v2)                         \
    X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD_v2) X(cuMemcpyHtoDAsync_v2)                        \
    X(cuMemcpyDtoH_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyHtoDAsync_v2_ptsz)                        \
    X(cuMemcpy2DAsync_v2) X(cuMemcpy3DAsync_v2)

#pragma push_macro("cuDevicePrimaryCtxRelease")
#pragma push_macro("cuDevicePrimaryCtxReset")
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset

extern "C" {
CUresult cuMemAlloc_v2(CUdeviceptr*, std::size_t) SIMCUDA_BODY(cuMemAlloc_v2);
CUresult cuMemAllocPitch_v2(CUdeviceptr*, std::size_t*, std::size_t, std::size_t, unsigned)
    SIMCUDA_BODY(cuMemAllocPitch_v2);
CUresult cuMemAllocManaged(CUdeviceptr*, std::size_t, unsigned) SIMCUDA_BODY(cuMemAllocManaged);
CUresult cuMemAllocAsync(CUdeviceptr*, std::size_t, CUstream) SIMCUDA_BODY(cuMemAllocAsync);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream)
    SIMCUDA_BODY(cuMemAllocFromPoolAsync);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream) SIMCUDA_BODY(cuMemFreeAsync);
CUresult cuMemFree_v2(CUdeviceptr) SIMCUDA_BODY(cuMemFree_v2);
CUresult cuMemFreeHost(void*) SIMCUDA_BODY(cuMemFreeHost);
CUresult cuMemHostRegister_v2(void*, std::size_t, unsigned) SIMCUDA_BODY(cuMemHostRegister_v2);
CUresult cuMemHostUnregister(void*) SIMCUDA_BODY(cuMemHostUnregister);
CUresult cuMemMap(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                  unsigned long long) SIMCUDA_BODY(cuMemMap);
CUresult cuMemUnmap(CUdeviceptr, std::size_t) SIMCUDA_BODY(cuMemUnmap);
CUresult cuIpcCloseMemHandle(CUdeviceptr) SIMCUDA_BODY(cuIpcCloseMemHandle);
CUresult cuCtxDestroy_v2(CUcontext) SIMCUDA_BODY(cuCtxDestroy_v2);
CUresult cuDevicePrimaryCtxRelease(CUdevice) SIMCUDA_BODY(cuDevicePrimaryCtxRelease);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) SIMCUDA_BODY(cuDevicePrimaryCtxRelease_v2);
CUresult cuDevicePrimaryCtxReset(CUdevice) SIMCUDA_BODY(cuDevicePrimaryCtxReset);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice) SIMCUDA_BODY(cuDevicePrimaryCtxReset_v2);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice) SIMCUDA_BODY(cuDevicePrimaryCtxRetain);
CUresult cuCtxSynchronize() SIMCUDA_BODY(cuCtxSynchronize);
CUresult cuModuleUnload(CUmodule) SIMCUDA_BODY(cuModuleUnload);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode)
    SIMCUDA_BODY(cuStreamBeginCapture_v2);
CUresult cuStreamEndCapture(CUstream, CUgraph*) SIMCUDA_BODY(cuStreamEndCapture);
CUresult cuStreamDestroy_v2(CUstream) SIMCUDA_BODY(cuStreamDestroy_v2);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, std::size_t) SIMCUDA_BODY(cuMemcpy);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)
    SIMCUDA_BODY(cuMemcpyAsync);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, std::size_t) SIMCUDA_BODY(cuMemcpyHtoD_v2);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, std::size_t, CUstream)
    SIMCUDA_BODY(cuMemcpyHtoDAsync_v2);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, std::size_t) SIMCUDA_BODY(cuMemcpyDtoH_v2);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, std::size_t, CUstream)
    SIMCUDA_BODY(cuMemcpyDtoHAsync_v2);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr, const void*, std::size_t, CUstream)
    SIMCUDA_BODY(cuMemcpyHtoDAsync_v2_ptsz);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D*, CUstream) SIMCUDA_BODY(cuMemcpy2DAsync_v2);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D*, CUstream) SIMCUDA_BODY(cuMemcpy3DAsync_v2);
}

#pragma pop_macro("cuDevicePrimaryCtxReset")
#pragma pop_macro("cuDevicePrimaryCtxRelease")
