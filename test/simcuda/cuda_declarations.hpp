// SPDX-License-Identifier: BSD-3-Clause
// cuda.h, and what the simulation and its tests use of newer versions than the header.
#pragma once

#include <cuda.h>

#if CUDA_VERSION < 12000

// As cuda.h of CUDA 12.0 declares them.
typedef enum CUdriverProcAddressQueryResult_enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;

extern "C" {
CUresult cuCtxGetId(CUcontext context, unsigned long long *id);
CUresult cuStreamGetId(CUstream stream, unsigned long long *id);
CUresult cuGetProcAddress_v2(const char *function, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status);
}
#define cuGetProcAddress cuGetProcAddress_v2

#endif

// What cuStreamGetCaptureInfo_v3 tells of the edges of a graph.
#if CUDA_VERSION < 12030
typedef void EdgeData;
#else
typedef CUgraphEdgeData EdgeData;
#endif

#if CUDA_VERSION < 13000

// As cuda.h of CUDA 13.0 declares it.
extern "C" CUresult cuCtxSynchronize_v2(CUcontext context);

#endif

#if CUDA_VERSION < 12080

// As cuda.h of CUDA 12.8 declares them.
typedef enum CUmemcpySrcAccessOrder_enum {
    CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
    CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2,
    CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3
} CUmemcpySrcAccessOrder;

typedef struct CUmemcpyAttributes_st {
    CUmemcpySrcAccessOrder srcAccessOrder;
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned int flags;
} CUmemcpyAttributes;

#endif
