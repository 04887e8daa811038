// SPDX-License-Identifier: BSD-3-Clause
#include "cuda_api.hpp"

#include "check.hpp"

#include <dlfcn.h>

#include <map>

namespace gpushm::ucp_test {
namespace {

void *library() {
    static void *const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
}

// The argument is expanded: cuda.h maps names to versions, cuMemAlloc to cuMemAlloc_v2.
#define GPUSHM_TEST_TEXT(text) #text
#define GPUSHM_TEST_SYMBOL(function) GPUSHM_TEST_TEXT(function)

CudaApi open_driver() {
    CudaApi api = {};
    if (library() == nullptr) {
        skip("no CUDA driver");
    }
// Not one in terms of the other: the member's name must not be expanded.
#define GPUSHM_TEST_FIND(function)                                 \
    api.function##_ = reinterpret_cast<decltype(api.function##_)>( \
        dlsym(library(), GPUSHM_TEST_SYMBOL(function)));
#define GPUSHM_TEST_NEED(function)                                    \
    api.function##_ = reinterpret_cast<decltype(api.function##_)>(    \
        dlsym(library(), GPUSHM_TEST_SYMBOL(function)));              \
    if (api.function##_ == nullptr) {                                 \
        fail("libcuda.so.1 has no %s", GPUSHM_TEST_SYMBOL(function)); \
    }
    GPUSHM_TEST_CUDA_FUNCTIONS(GPUSHM_TEST_NEED)
    GPUSHM_TEST_CUDA_OPTIONAL(GPUSHM_TEST_FIND)
    api.prefetch = reinterpret_cast<decltype(api.prefetch)>(dlsym(library(), "cuMemPrefetchAsync"));
    int count = 0;
    if (api.cuInit_(0) != CUDA_SUCCESS || api.cuDeviceGetCount_(&count) != CUDA_SUCCESS ||
        count == 0) {
        skip("the CUDA driver has no usable device");
    }
    return api;
}

/** Those that were retained, by device. */
std::map<int, CUcontext> &primary_contexts() {
    static std::map<int, CUcontext> contexts;
    return contexts;
}

}  // namespace

const CudaApi &cuda() {
    static const CudaApi api = open_driver();
    return api;
}

int device_count() {
    int count = 0;
    require(cuda().cuDeviceGetCount_(&count), "cuDeviceGetCount");
    return count;
}

CUcontext primary_context(int device) {
    CUcontext &context = primary_contexts()[device];
    if (context == nullptr) {
        CUdevice handle;
        require(cuda().cuDeviceGet_(&handle, device), "cuDeviceGet");
        require(cuda().cuDevicePrimaryCtxRetain_(&context, handle), "cuDevicePrimaryCtxRetain");
    }
    return context;
}

void use_device(int device) {
    require(cuda().cuCtxSetCurrent_(primary_context(device)), "cuCtxSetCurrent");
}

void reset_device(int device) {
    CUdevice handle;
    require(cuda().cuDeviceGet_(&handle, device), "cuDeviceGet");
    require(cuda().cuCtxSetCurrent_(nullptr), "cuCtxSetCurrent");
    require(cuda().cuDevicePrimaryCtxReset_(handle), "cuDevicePrimaryCtxReset");
    primary_contexts().erase(device);
}

void require(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        const char *name = nullptr;
        cuda().cuGetErrorName_(result, &name);
        fail("%s of the test itself: %s", what, name != nullptr ? name : "unknown error");
    }
}

void copy_by_driver(void *to, const void *from, size_t bytes) {
    if (bytes == 0) {
        return;
    }
    require(cuda().cuMemcpy_(device_address(to), device_address(from), bytes), "cuMemcpy");
    // From pageable memory it may return before the bytes have arrived (CUDA driver API, "API
    // synchronization behavior"), and our copies use other streams.
    require(cuda().cuCtxSynchronize_(), "cuCtxSynchronize");
}

void *driver_control(const char *symbol) {
    return library() != nullptr ? dlsym(library(), symbol) : nullptr;
}

bool counts_calls() {
    return driver_control("simcuda_call_count") != nullptr;
}

unsigned long calls_of(const char *function) {
    using Count = unsigned long (*)(const char *);
    return reinterpret_cast<Count>(driver_control("simcuda_call_count"))(function);
}

}  // namespace gpushm::ucp_test
