// SPDX-License-Identifier: BSD-3-Clause
// Functions that begin as those of the real driver do (seen in 580): programs change the first
// instructions of the ones by which memory comes, goes and is filled, and of waits, to be told of
// it.
#pragma once

#include "cuda_declarations.hpp"

#include <cstddef>

// What the source calls cuX has this name in the library; cuX itself is in entry_points.cpp.
#define SIMCUDA_BODY(function) __asm__("body_of_" #function)

// Names of today, whatever cuda.h makes of them.
// clang-format off
#define SIMCUDA_ENTRY_POINTS(X)                                                                    \
    X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemAllocAsync)                 \
    X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemFree_v2) X(cuMemFreeHost)                  \
    X(cuMemHostRegister_v2) X(cuMemHostUnregister)                                                 \
    X(cuMemMap) X(cuMemUnmap) X(cuIpcCloseMemHandle) X(cuCtxDestroy_v2)                            \
    X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxReset_v2)                                  \
    X(cuDevicePrimaryCtxRetain) X(cuCtxSynchronize) X(cuCtxSynchronize_v2)                          \
    X(cuModuleGetGlobal_v2) X(cuModuleUnload)                                                      \
    X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuStreamDestroy_v2)                         \
    X(cuArrayDestroy)                                                                              \
    X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyPeer) X(cuMemcpyPeerAsync)                              \
    X(cuMemcpyHtoD_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoHAsync_v2)          \
    X(cuMemcpyDtoD_v2) X(cuMemcpyDtoDAsync_v2)                                                     \
    X(cuMemcpyDtoA_v2) X(cuMemcpyAtoD_v2) X(cuMemcpyHtoA_v2) X(cuMemcpyAtoH_v2)                    \
    X(cuMemcpyAtoA_v2) X(cuMemcpyHtoAAsync_v2) X(cuMemcpyAtoHAsync_v2)                             \
    X(cuMemcpy2D_v2) X(cuMemcpy2DUnaligned_v2) X(cuMemcpy2DAsync_v2)                               \
    X(cuMemcpy3D_v2) X(cuMemcpy3DAsync_v2) X(cuMemcpy3DPeer) X(cuMemcpy3DPeerAsync)                \
    X(cuMemsetD8_v2) X(cuMemsetD16_v2) X(cuMemsetD32_v2)                                           \
    X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async)                                     \
    X(cuMemsetD2D8_v2) X(cuMemsetD2D16_v2) X(cuMemsetD2D32_v2)                                     \
    X(cuMemsetD2D8Async) X(cuMemsetD2D16Async) X(cuMemsetD2D32Async)                               \
    X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent)                                   \
    X(cuEventRecord) X(cuEventRecordWithFlags) X(cuEventSynchronize) X(cuEventQuery)               \
    X(cuLaunchKernel) X(cuLaunchHostFunc) X(cuGraphLaunch)
// clang-format on

// Those that cuda.h declares from CUDA 11.7 on.
#if CUDA_VERSION >= 11070
#define SIMCUDA_ENTRY_POINTS_OF_11070(X) X(cuStreamWaitValue32_v2) X(cuStreamWaitValue64_v2)
#else
#define SIMCUDA_ENTRY_POINTS_OF_11070(X)
#endif

// Those that cuda.h does not declare, as newer versions have taken their place.
#define SIMCUDA_ENTRY_POINTS_OF_OLD(X) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset)

// Functions that have another form for programs whose default stream is that of the thread: how
// many arguments they take, and what is behind the name of that form.
// clang-format off
#define SIMCUDA_PER_THREAD_FUNCTIONS(X)                                                            \
    X(3, cuMemcpy, _ptds) X(5, cuMemcpyPeer, _ptds) X(1, cuMemcpy3DPeer, _ptds)                    \
    X(3, cuMemcpyHtoD_v2, _ptds) X(3, cuMemcpyDtoH_v2, _ptds) X(3, cuMemcpyDtoD_v2, _ptds)         \
    X(4, cuMemcpyDtoA_v2, _ptds) X(4, cuMemcpyAtoD_v2, _ptds) X(4, cuMemcpyHtoA_v2, _ptds)         \
    X(4, cuMemcpyAtoH_v2, _ptds) X(5, cuMemcpyAtoA_v2, _ptds)                                      \
    X(1, cuMemcpy2D_v2, _ptds) X(1, cuMemcpy2DUnaligned_v2, _ptds) X(1, cuMemcpy3D_v2, _ptds)      \
    X(3, cuMemsetD8_v2, _ptds) X(3, cuMemsetD16_v2, _ptds) X(3, cuMemsetD32_v2, _ptds)             \
    X(5, cuMemsetD2D8_v2, _ptds) X(5, cuMemsetD2D16_v2, _ptds) X(5, cuMemsetD2D32_v2, _ptds)       \
    X(4, cuMemcpyAsync, _ptsz) X(6, cuMemcpyPeerAsync, _ptsz) X(2, cuMemcpy3DPeerAsync, _ptsz)     \
    X(4, cuMemcpyHtoDAsync_v2, _ptsz) X(4, cuMemcpyDtoHAsync_v2, _ptsz)                            \
    X(4, cuMemcpyDtoDAsync_v2, _ptsz) X(5, cuMemcpyHtoAAsync_v2, _ptsz)                            \
    X(5, cuMemcpyAtoHAsync_v2, _ptsz) X(2, cuMemcpy2DAsync_v2, _ptsz)                              \
    X(2, cuMemcpy3DAsync_v2, _ptsz)                                                                \
    X(4, cuMemsetD8Async, _ptsz) X(4, cuMemsetD16Async, _ptsz) X(4, cuMemsetD32Async, _ptsz)       \
    X(6, cuMemsetD2D8Async, _ptsz) X(6, cuMemsetD2D16Async, _ptsz)                                 \
    X(6, cuMemsetD2D32Async, _ptsz)                                                                \
    X(3, cuMemAllocAsync, _ptsz) X(4, cuMemAllocFromPoolAsync, _ptsz) X(2, cuMemFreeAsync, _ptsz)  \
    X(1, cuStreamSynchronize, _ptsz) X(1, cuStreamQuery, _ptsz) X(3, cuStreamWaitEvent, _ptsz)     \
    X(2, cuStreamGetCtx, _ptsz) X(2, cuStreamGetFlags, _ptsz) X(2, cuStreamGetPriority, _ptsz)     \
    X(2, cuStreamGetId, _ptsz) X(2, cuStreamIsCapturing, _ptsz)                                    \
    X(2, cuStreamBeginCapture_v2, _ptsz) X(2, cuStreamEndCapture, _ptsz)                           \
    X(4, cuStreamAddCallback, _ptsz) X(3, cuLaunchHostFunc, _ptsz)                                 \
    X(2, cuEventRecord, _ptsz) X(3, cuEventRecordWithFlags, _ptsz)                                 \
    X(11, cuLaunchKernel, _ptsz) X(2, cuGraphLaunch, _ptsz)
// clang-format on

#pragma push_macro("cuDevicePrimaryCtxRelease")
#pragma push_macro("cuDevicePrimaryCtxReset")
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset

extern "C" {
#define SIMCUDA_DECLARE(function) decltype(function) function SIMCUDA_BODY(function);
SIMCUDA_ENTRY_POINTS(SIMCUDA_DECLARE)
SIMCUDA_ENTRY_POINTS_OF_11070(SIMCUDA_DECLARE)
#undef SIMCUDA_DECLARE

#define SIMCUDA_DECLARE(function) CUresult function(CUdevice) SIMCUDA_BODY(function);
SIMCUDA_ENTRY_POINTS_OF_OLD(SIMCUDA_DECLARE)
#undef SIMCUDA_DECLARE

#define SIMCUDA_DECLARE(arguments, function, form) \
    decltype(function) function##form __asm__("body_of_" #function #form);
SIMCUDA_PER_THREAD_FUNCTIONS(SIMCUDA_DECLARE)
#undef SIMCUDA_DECLARE
}

#pragma pop_macro("cuDevicePrimaryCtxReset")
#pragma pop_macro("cuDevicePrimaryCtxRelease")
