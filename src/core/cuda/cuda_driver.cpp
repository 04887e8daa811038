// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/cuda_driver.hpp"

#include "core/base/log.hpp"
#include "core/cuda/ended_contexts.hpp"

#include <dlfcn.h>

namespace gpushm {
namespace {

template <typename Function>
bool find_optional_in(void *library, const char *symbol, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    return function != nullptr;
}

template <typename Function>
bool find_in(void *library, const char *symbol, Function &function) {
    const bool found = find_optional_in(library, symbol, function);
    if (!found) {
        GPUSHM_LOG(warn,
                   "libcuda.so.1 has no %s: GPU memory is not served; update the NVIDIA driver "
                   "(CUDA 11.4 or newer)",
                   symbol);
    }
    return found;
}

const CudaDriver *open_driver() {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        GPUSHM_LOG(debug, "no CUDA driver (%s): host memory only", dlerror());
        return nullptr;
    }
    static CudaDriver driver;
    driver.find_newer(library);
    return driver.find_needed(library) ? &driver : nullptr;
}

}  // namespace

bool CudaDriver::find_needed(void *library) {
    const auto find = [library](const char *symbol, auto &function) {
        return find_in(library, symbol, function);
    };
    return find("cuInit", init) && find("cuDriverGetVersion", driver_get_version) &&
           find("cuGetErrorName", get_error_name) && find("cuDeviceGet", device_get) &&
           find("cuDeviceGetCount", device_get_count) && find("cuDeviceGetName", device_get_name) &&
           find("cuDeviceGetUuid_v2", device_get_uuid) &&
           find("cuDeviceGetAttribute", device_get_attribute) &&
           find("cuDeviceGetPCIBusId", device_get_pci_bus_id) &&
           find("cuDeviceTotalMem_v2", device_total_mem) &&
           find("cuDeviceCanAccessPeer", device_can_access_peer) &&
           find("cuDevicePrimaryCtxRetain", device_primary_ctx_retain) &&
           find("cuDevicePrimaryCtxRelease_v2", device_primary_ctx_release) &&
           find("cuCtxGetCurrent", ctx_get_current) && find("cuCtxGetDevice", ctx_get_device) &&
           find("cuCtxPushCurrent_v2", ctx_push_current) &&
           find("cuCtxPopCurrent_v2", ctx_pop_current) && find("cuStreamCreate", stream_create) &&
           find("cuStreamDestroy_v2", stream_destroy) &&
           find("cuStreamSynchronize", stream_synchronize) && find("cuStreamQuery", stream_query) &&
           find("cuEventCreate", event_create) && find("cuEventDestroy_v2", event_destroy) &&
           find("cuEventRecord", event_record) && find("cuEventQuery", event_query) &&
           find("cuMemAlloc_v2", mem_alloc) && find("cuMemAllocManaged", mem_alloc_managed) &&
           find("cuMemFree_v2", mem_free) && find("cuMemHostRegister_v2", mem_host_register) &&
           find("cuMemHostUnregister", mem_host_unregister) && find("cuMemcpy", memcpy_sync) &&
           find("cuMemcpy2DAsync_v2", memcpy_2d_async) && find("cuMemcpyAsync", memcpy_async) &&
           find("cuMemsetD8_v2", memset_d8) &&
           find("cuPointerGetAttributes", pointer_get_attributes) &&
           find("cuPointerSetAttribute", pointer_set_attribute) &&
           find("cuIpcGetMemHandle", ipc_get_mem_handle) &&
           find("cuIpcOpenMemHandle_v2", ipc_open_mem_handle) &&
           find("cuIpcCloseMemHandle", ipc_close_mem_handle);
}

void CudaDriver::find_newer(void *library) {
    const auto find = [library](const char *symbol, auto &function) {
        return find_optional_in(library, symbol, function);
    };
    find("cuCtxGetId", ctx_get_id);
    find("cuThreadExchangeStreamCaptureMode", thread_exchange_capture_mode);
    find("cuDevicePrimaryCtxGetState", primary_ctx_get_state);
    find("cuCtxRecordEvent", ctx_record_event);
    find("cuStreamIsCapturing", stream_is_capturing);
    find("cuMemcpyBatchAsync_v2", memcpy_batch_plain);
    find("cuMemcpyBatchAsync", memcpy_batch_with_index);
    const bool virtual_memory =
        find("cuMemExportToShareableHandle", mem_export_to_shareable_handle) &&
        find("cuMemImportFromShareableHandle", mem_import_from_shareable_handle) &&
        find("cuMemAddressReserve", mem_address_reserve) &&
        find("cuMemAddressFree", mem_address_free) && find("cuMemMap", mem_map) &&
        find("cuMemUnmap", mem_unmap) && find("cuMemSetAccess", mem_set_access) &&
        find("cuMemRelease", mem_release) &&
        find("cuMemRetainAllocationHandle", mem_retain_allocation_handle);
    if (!virtual_memory) {
        mem_retain_allocation_handle = nullptr;
    }
    const bool kernels = find("cuModuleLoadData", module_load_data) &&
                         find("cuModuleUnload", module_unload) &&
                         find("cuModuleGetFunction", module_get_function) &&
                         find("cuModuleGetGlobal_v2", module_get_global) &&
                         find("cuCtxGetStreamPriorityRange", ctx_get_stream_priority_range) &&
                         find("cuStreamCreateWithPriority", stream_create_with_priority) &&
                         find("cuMemHostGetDevicePointer_v2", mem_host_get_device_pointer) &&
                         find("cuLaunchKernel", launch_kernel);
    if (!kernels) {
        launch_kernel = nullptr;
    }
}

const CudaDriver *CudaDriver::get() {
    static const CudaDriver *const driver = open_driver();
    return driver;
}

bool context_has_ended(CUresult answer) {
    return answer == CUDA_ERROR_CONTEXT_IS_DESTROYED || answer == CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CudaDriver::query_context_id(CUcontext context, unsigned long long *id) const {
    *id = 0;
    if (ctx_get_id == nullptr) {
        *id = count_ended(context);
        return CUDA_SUCCESS;
    }
    return retry_once([&] { return ctx_get_id(context, id); });
}

unsigned long long CudaDriver::context_id(CUcontext context) const {
    unsigned long long id = 0;
    return query_context_id(context, &id) == CUDA_SUCCESS ? id : 0;
}

bool CudaDriver::context_is_alive(CUcontext context, unsigned long long id) const {
    unsigned long long id_now = 0;
    const CUresult result = query_context_id(context, &id_now);
    return result == CUDA_SUCCESS ? id_now == id : !context_has_ended(result);
}

std::optional<bool> CudaDriver::primary_context_is_active(CUdevice device) const {
    unsigned flags = 0;
    int active = 0;
    if (primary_ctx_get_state == nullptr ||
        primary_ctx_get_state(device, &flags, &active) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    return active != 0;
}

bool CudaDriver::has_memcpy_batch() const {
    return memcpy_batch_plain != nullptr || memcpy_batch_with_index != nullptr;
}

CUresult CudaDriver::memcpy_batch(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *lengths,
                                  size_t count, CUstream stream) const {
    // CUmemcpyAttributes of CUDA 12.8, which the headers of older toolkits lack.
    struct {
        int source_access_order = 1;  // CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        int locations_and_flags[5] = {};
    } attributes;
    size_t first = 0;
    if (memcpy_batch_plain != nullptr) {
        return memcpy_batch_plain(destinations, sources, lengths, count, &attributes, &first, 1,
                                  stream);
    }
    size_t failed = 0;
    return memcpy_batch_with_index(destinations, sources, lengths, count, &attributes, &first, 1,
                                   &failed, stream);
}

const char *CudaDriver::error_name(CUresult result) const {
    const char *name = nullptr;
    return get_error_name(result, &name) == CUDA_SUCCESS && name != nullptr ? name
                                                                            : "unknown CUDA error";
}

}  // namespace gpushm
