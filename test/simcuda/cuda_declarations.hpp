// SPDX-License-Identifier: BSD-3-Clause
// cuda.h, and what the simulation and its tests use of CUDA 12.0 where the header is older.
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
CUresult cuCtxGetId(CUcontext context, unsigned long long* id);
CUresult cuStreamGetId(CUstream stream, unsigned long long* id);
CUresult cuGetProcAddress_v2(const char* function, void** address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status);
}
#define cuGetProcAddress cuGetProcAddress_v2

#endif
