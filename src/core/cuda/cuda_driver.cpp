// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/cuda_driver.hpp"

#include "core/base/log.hpp"
#include "core/cuda/ended_contexts.hpp"

#include <dlfcn.h>

namespace gpushm {
namespace {

template <typename Function>
bool find(void *library, const char *symbol, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    if (function == nullptr) {
        GPUSHM_LOG(warn,
                   "libcuda.so.1 has no %s: GPU memory is not served; update the NVIDIA driver "
                   "(CUDA 11.4 or newer)",
                   symbol);
    }
    return function != nullptr;
}

bool find_all(void *library, CudaDriver &driver) {
    return find(library, "cuInit", driver.init) &&
           find(library, "cuDriverGetVersion", driver.driver_get_version) &&
           find(library, "cuGetErrorName", driver.get_error_name) &&
           find(library, "cuDeviceGet", driver.device_get) &&
           find(library, "cuDeviceGetCount", driver.device_get_count) &&
           find(library, "cuDeviceGetName", driver.device_get_name) &&
           find(library, "cuDeviceGetUuid_v2", driver.device_get_uuid) &&
           find(library, "cuDeviceGetAttribute", driver.device_get_attribute) &&
           find(library, "cuDeviceGetPCIBusId", driver.device_get_pci_bus_id) &&
           find(library, "cuDeviceTotalMem_v2", driver.device_total_mem) &&
           find(library, "cuDeviceCanAccessPeer", driver.device_can_access_peer) &&
           find(library, "cuDevicePrimaryCtxRetain", driver.device_primary_ctx_retain) &&
           find(library, "cuDevicePrimaryCtxRelease_v2", driver.device_primary_ctx_release) &&
           find(library, "cuCtxGetCurrent", driver.ctx_get_current) &&
           find(library, "cuCtxGetDevice", driver.ctx_get_device) &&
           find(library, "cuCtxPushCurrent_v2", driver.ctx_push_current) &&
           find(library, "cuCtxPopCurrent_v2", driver.ctx_pop_current) &&
           find(library, "cuStreamCreate", driver.stream_create) &&
           find(library, "cuStreamDestroy_v2", driver.stream_destroy) &&
           find(library, "cuStreamSynchronize", driver.stream_synchronize) &&
           find(library, "cuStreamQuery", driver.stream_query) &&
           find(library, "cuEventCreate", driver.event_create) &&
           find(library, "cuEventDestroy_v2", driver.event_destroy) &&
           find(library, "cuEventRecord", driver.event_record) &&
           find(library, "cuEventQuery", driver.event_query) &&
           find(library, "cuMemAlloc_v2", driver.mem_alloc) &&
           find(library, "cuMemAllocManaged", driver.mem_alloc_managed) &&
           find(library, "cuMemFree_v2", driver.mem_free) &&
           find(library, "cuMemHostRegister_v2", driver.mem_host_register) &&
           find(library, "cuMemHostUnregister", driver.mem_host_unregister) &&
           find(library, "cuMemcpy", driver.memcpy_sync) &&
           find(library, "cuMemcpy2DAsync_v2", driver.memcpy_2d_async) &&
           find(library, "cuMemcpyAsync", driver.memcpy_async) &&
           find(library, "cuMemsetD8_v2", driver.memset_d8) &&
           find(library, "cuPointerGetAttributes", driver.pointer_get_attributes) &&
           find(library, "cuPointerSetAttribute", driver.pointer_set_attribute) &&
           find(library, "cuIpcGetMemHandle", driver.ipc_get_mem_handle) &&
           find(library, "cuIpcOpenMemHandle_v2", driver.ipc_open_mem_handle) &&
           find(library, "cuIpcCloseMemHandle", driver.ipc_close_mem_handle);
}

template <typename Function>
bool find_optional(void *library, const char *symbol, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    return function != nullptr;
}

/** What gpushm can do without. */
void find_newer(void *library, CudaDriver &driver) {
    find_optional(library, "cuCtxGetId", driver.ctx_get_id);
    find_optional(library, "cuThreadExchangeStreamCaptureMode",
                  driver.thread_exchange_capture_mode);
    find_optional(library, "cuDevicePrimaryCtxGetState", driver.primary_ctx_get_state);
    find_optional(library, "cuCtxRecordEvent", driver.ctx_record_event);
    find_optional(library, "cuStreamIsCapturing", driver.stream_is_capturing);
    find_optional(library, "cuMemcpyBatchAsync_v2", driver.memcpy_batch_plain);
    find_optional(library, "cuMemcpyBatchAsync", driver.memcpy_batch_with_index);
    const bool virtual_memory =
        find_optional(library, "cuMemExportToShareableHandle",
                      driver.mem_export_to_shareable_handle) &&
        find_optional(library, "cuMemImportFromShareableHandle",
                      driver.mem_import_from_shareable_handle) &&
        find_optional(library, "cuMemAddressReserve", driver.mem_address_reserve) &&
        find_optional(library, "cuMemAddressFree", driver.mem_address_free) &&
        find_optional(library, "cuMemMap", driver.mem_map) &&
        find_optional(library, "cuMemUnmap", driver.mem_unmap) &&
        find_optional(library, "cuMemSetAccess", driver.mem_set_access) &&
        find_optional(library, "cuMemRelease", driver.mem_release) &&
        find_optional(library, "cuMemRetainAllocationHandle", driver.mem_retain_allocation_handle);
    if (!virtual_memory) {
        driver.mem_retain_allocation_handle = nullptr;
    }
    const bool kernels =
        find_optional(library, "cuModuleLoadData", driver.module_load_data) &&
        find_optional(library, "cuModuleUnload", driver.module_unload) &&
        find_optional(library, "cuModuleGetFunction", driver.module_get_function) &&
        find_optional(library, "cuModuleGetGlobal_v2", driver.module_get_global) &&
        find_optional(library, "cuCtxGetStreamPriorityRange",
                      driver.ctx_get_stream_priority_range) &&
        find_optional(library, "cuStreamCreateWithPriority", driver.stream_create_with_priority) &&
        find_optional(library, "cuMemHostGetDevicePointer_v2",
                      driver.mem_host_get_device_pointer) &&
        find_optional(library, "cuLaunchKernel", driver.launch_kernel);
    if (!kernels) {
        driver.launch_kernel = nullptr;
    }
}

const CudaDriver *open_driver() {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        GPUSHM_LOG(debug, "no CUDA driver (%s): host memory only", dlerror());
        return nullptr;
    }
    static CudaDriver driver;
    find_newer(library, driver);
    return find_all(library, driver) ? &driver : nullptr;
}

}  // namespace

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
