// SPDX-License-Identifier: BSD-3-Clause
// Makes a ucx_perftest that was built without CUDA accept -m cuda and -m cuda-managed. The program
// exports an array of allocators, one for each memory type (src/tools/perf/lib/libperf_int.h and
// libperf_memory.c, UCX 1.13 to 1.23). This library fills two entries when it is loaded, by
// libgpushm_preload.so or, from UCX 1.22 on, by ucx_perftest's own plugin loader.
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"

#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>

#include <cstddef>
#include <dlfcn.h>

namespace gpushm {
namespace {

/** struct ucx_perf_allocator. The context and uct_allocated_memory_t are opaque, because they
 * differ between versions. */
struct PerfAllocator {
    ucs_memory_type_t mem_type;
    ucs_status_t (*init)(void *perf);
    ucs_status_t (*uct_alloc)(const void *perf, size_t length, unsigned flags, void *allocated);
    void (*uct_free)(const void *perf, void *allocated);
    void (*memcpy)(void *destination, ucs_memory_type_t destination_type, const void *source,
                   ucs_memory_type_t source_type, size_t bytes);
    void *(*memset)(void *destination, int value, size_t bytes);
};

CUdeviceptr device_address(const void *address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

/** False, logged: `what` failed. */
bool succeeded(const char *what, CUresult result) {
    if (result == CUDA_SUCCESS) {
        return true;
    }
    GPUSHM_LOG(error,
               "ucx_perftest: %s failed: %s; look at nvidia-smi, or choose another GPU by "
               "CUDA_VISIBLE_DEVICES",
               what, CudaDriver::get()->error_name(result));
    return false;
}

/** The primary context of the first visible GPU, retained until the program ends. Null: there is
 * none. */
CUcontext primary_context() {
    static const CUcontext context = [] {
        const CudaDriver &cuda = *CudaDriver::get();
        CUdevice device = 0;
        CUcontext retained = nullptr;
        const bool ok = succeeded("cuInit", cuda.init(0)) &&
                        succeeded("cuDeviceGet", cuda.device_get(&device, 0)) &&
                        succeeded("cuDevicePrimaryCtxRetain",
                                  cuda.device_primary_ctx_retain(&retained, device));
        return ok ? retained : nullptr;
    }();
    return context;
}

/** Makes the context current in the calling thread, like an application on this GPU. */
ucs_status_t init(void *) {
    const CudaDriver &cuda = *CudaDriver::get();
    const CUcontext context = primary_context();
    CUcontext current = nullptr;
    if (context == nullptr || !succeeded("cuCtxGetCurrent", cuda.ctx_get_current(&current))) {
        return UCS_ERR_NO_DEVICE;
    }
    if (current != context && !succeeded("cuCtxPushCurrent", cuda.ctx_push_current(context))) {
        return UCS_ERR_NO_DEVICE;
    }
    return UCS_OK;
}

/** Fails: the UCT tests have to register the memory with a memory domain that only ucx_perftest's
 * private context knows. The UCP tests allocate with ucp_mem_map instead. */
ucs_status_t uct_alloc(const void *, size_t, unsigned, void *) {
    GPUSHM_LOG(error,
               "ucx_perftest: tests of a single transport cannot use GPU memory with "
               "gpushm: leave out -x and -d, and choose a UCP test, for example -t tag_lat");
    return UCS_ERR_UNSUPPORTED;
}

void uct_free(const void *, void *) {}

/** Runs an operation in the context, in any thread, and waits for its end: copies within a device
 * return early. */
template <typename Operation>
void in_context(const char *what, Operation operation) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUcontext popped = nullptr;
    if (!succeeded("cuCtxPushCurrent", cuda.ctx_push_current(primary_context()))) {
        return;
    }
    if (succeeded(what, operation(cuda))) {
        succeeded("cuStreamSynchronize", cuda.stream_synchronize(nullptr));
    }
    succeeded("cuCtxPopCurrent", cuda.ctx_pop_current(&popped));
}

void copy(void *destination, ucs_memory_type_t, const void *source, ucs_memory_type_t,
          size_t bytes) {
    in_context("cuMemcpy", [&](const CudaDriver &cuda) {
        return cuda.memcpy_sync(device_address(destination), device_address(source), bytes);
    });
}

void *fill(void *destination, int value, size_t bytes) {
    in_context("cuMemsetD8", [&](const CudaDriver &cuda) {
        return cuda.memset_d8(device_address(destination), static_cast<unsigned char>(value),
                              bytes);
    });
    return destination;
}

PerfAllocator our_allocators[] = {
    {UCS_MEMORY_TYPE_CUDA, init, uct_alloc, uct_free, copy, fill},
    {UCS_MEMORY_TYPE_CUDA_MANAGED, init, uct_alloc, uct_free, copy, fill},
};

/** Leaves entries that a ucx_perftest with CUDA has filled. Without a driver they stay empty, and
 * ucx_perftest prints that the memory type is not supported. */
__attribute__((constructor)) void fill_allocators() {
    auto **allocators =
        static_cast<PerfAllocator **>(dlsym(RTLD_DEFAULT, "ucx_perf_mem_type_allocators"));
    if (allocators == nullptr || CudaDriver::get() == nullptr) {
        return;
    }
    for (PerfAllocator &ours : our_allocators) {
        if (allocators[ours.mem_type] == nullptr) {
            allocators[ours.mem_type] = &ours;
        }
    }
}

}  // namespace
}  // namespace gpushm
