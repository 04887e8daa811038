// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver library, opened at run time: gpushm never links libcuda.
#pragma once

#include <cuda.h>

#include <optional>

namespace gpushm {

/** Whether an answer of the driver says that a context does not exist any more. */
bool context_has_ended(CUresult answer);

/** Whether a call need not be tried again. CUDA_ERROR_NOT_READY is an answer to a query. */
inline bool is_final(CUresult result) {
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || context_has_ended(result);
}
inline bool is_final(bool has_succeeded) {
    return has_succeeded;
}

/** What `call` returns, a CUresult or a bool. It is called again, once, if it fails, unless the
 * answer says that the context has ended. A driver may be short of memory for a moment, and a
 * message that fails ends most programs. */
template <typename Call>
auto retry_once(Call call) -> decltype(call()) {
    const auto result = call();
    return is_final(result) ? result : call();
}

/** Functions of libcuda.so.1, in the versions that cuda.h of CUDA 11.4 and later maps their names
 * to; cuda.h of CUDA 11.4 declares all of them for which nothing else is said. Thread safe, as the
 * driver is. */
struct CudaDriver {
    /** The driver, or null on a machine without one. The first call opens the library; it makes no
     * context and does not call cuInit. Later calls cost a load. */
    static const CudaDriver *get();

    /** Looks up the functions that gpushm needs. False, logged: the library is too old. */
    bool find_needed(void *library);
    /** Looks up those that gpushm can do without. */
    void find_newer(void *library);

    /** "CUDA_ERROR_..." */
    const char *error_name(CUresult result) const;

    /** `*id` tells apart contexts that have one handle, as the primary context of a device does
     * before and after cudaDeviceReset. It is count_ended() where the driver does not number
     * contexts (before CUDA 12.0). A driver that fails is asked a second time, unless it says that
     * the context has ended. */
    CUresult query_context_id(CUcontext context, unsigned long long *id) const;
    /** The id of query_context_id(); 0 when the driver fails. */
    unsigned long long context_id(CUcontext context) const;

    /** Whether `context` is still the one that had `id`. True also when the driver fails for a
     * reason that says nothing about the context. */
    bool context_is_alive(CUcontext context, unsigned long long id) const;

    /** Whether the primary context of a device exists; nothing when the driver does not tell. */
    std::optional<bool> primary_context_is_active(CUdevice device) const;

    decltype(&cuInit) init;
    decltype(&cuDriverGetVersion) driver_get_version;
    decltype(&cuGetErrorName) get_error_name;

    decltype(&cuDeviceGet) device_get;
    decltype(&cuDeviceGetCount) device_get_count;
    decltype(&cuDeviceGetName) device_get_name;
    decltype(&cuDeviceGetUuid) device_get_uuid;
    decltype(&cuDeviceGetAttribute) device_get_attribute;
    decltype(&cuDeviceGetPCIBusId) device_get_pci_bus_id;
    decltype(&cuDeviceTotalMem) device_total_mem;
    decltype(&cuDeviceCanAccessPeer) device_can_access_peer;
    decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain;
    decltype(&cuDevicePrimaryCtxRelease) device_primary_ctx_release;

    decltype(&cuCtxGetCurrent) ctx_get_current;
    decltype(&cuCtxGetDevice) ctx_get_device;
    decltype(&cuCtxPushCurrent) ctx_push_current;
    decltype(&cuCtxPopCurrent) ctx_pop_current;
    CUresult (*ctx_get_id)(CUcontext context, unsigned long long *id);  // null before CUDA 12.0

    decltype(&cuStreamCreate) stream_create;
    decltype(&cuStreamDestroy) stream_destroy;
    decltype(&cuStreamSynchronize) stream_synchronize;
    decltype(&cuStreamQuery) stream_query;
    decltype(&cuEventCreate) event_create;
    decltype(&cuEventDestroy) event_destroy;
    decltype(&cuEventRecord) event_record;
    decltype(&cuEventQuery) event_query;

    decltype(&cuMemAlloc) mem_alloc;
    decltype(&cuMemAllocManaged) mem_alloc_managed;
    decltype(&cuMemFree) mem_free;
    decltype(&cuMemHostRegister) mem_host_register;
    decltype(&cuMemHostUnregister) mem_host_unregister;
    decltype(&cuMemcpy) memcpy_sync;
    decltype(&cuMemcpyAsync) memcpy_async;
    decltype(&cuMemcpy2DAsync) memcpy_2d_async;
    decltype(&cuMemsetD8) memset_d8;
    decltype(&cuPointerGetAttributes) pointer_get_attributes;
    decltype(&cuPointerSetAttribute) pointer_set_attribute;

    decltype(&cuIpcGetMemHandle) ipc_get_mem_handle;
    decltype(&cuIpcOpenMemHandle) ipc_open_mem_handle;
    decltype(&cuIpcCloseMemHandle) ipc_close_mem_handle;

    // ---- null where the driver is older than the function
    decltype(&cuThreadExchangeStreamCaptureMode) thread_exchange_capture_mode;
    decltype(&cuDevicePrimaryCtxGetState) primary_ctx_get_state;
    CUresult (*ctx_record_event)(CUcontext context, CUevent event);  // CUDA 12.5
    decltype(&cuStreamIsCapturing) stream_is_capturing;

    // Virtual memory management, all of CUDA 11.2; null together.
    decltype(&cuMemRetainAllocationHandle) mem_retain_allocation_handle;
    decltype(&cuMemExportToShareableHandle) mem_export_to_shareable_handle;
    decltype(&cuMemImportFromShareableHandle) mem_import_from_shareable_handle;
    decltype(&cuMemAddressReserve) mem_address_reserve;
    decltype(&cuMemAddressFree) mem_address_free;
    decltype(&cuMemMap) mem_map;
    decltype(&cuMemUnmap) mem_unmap;
    decltype(&cuMemSetAccess) mem_set_access;
    decltype(&cuMemRelease) mem_release;

    // Kernels of our own; null together.
    decltype(&cuModuleLoadData) module_load_data;
    decltype(&cuModuleUnload) module_unload;
    decltype(&cuModuleGetFunction) module_get_function;
    decltype(&cuModuleGetGlobal) module_get_global;
    decltype(&cuCtxGetStreamPriorityRange) ctx_get_stream_priority_range;
    decltype(&cuStreamCreateWithPriority) stream_create_with_priority;
    decltype(&cuLaunchKernel) launch_kernel;
    decltype(&cuMemHostGetDevicePointer) mem_host_get_device_pointer;
    bool has_kernels() const { return launch_kernel != nullptr; }

    /** Whether memcpy_batch works (CUDA 12.8 and later). */
    bool has_memcpy_batch() const;
    /** cuMemcpyBatchAsync in either of its two forms: `count` copies, all after what is in the
     * stream, among themselves in any order. */
    CUresult memcpy_batch(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *lengths,
                          size_t count, CUstream stream) const;

    // Of 12.8: one argument more, which receives the index of a copy that was refused.
    CUresult (*memcpy_batch_with_index)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *,
                                        size_t *, size_t, size_t *failed, CUstream);
    CUresult (*memcpy_batch_plain)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, void *, size_t *,
                                   size_t, CUstream);  // of 13.0
};

inline CUdeviceptr device_pointer(const void *address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

/** Makes a context current while it lives. */
class CurrentContext {
public:
    CurrentContext(const CudaDriver *driver, CUcontext context)
        : driver_(driver), result_(driver->ctx_push_current(context)) {}
    /** For a context that may have ended: pushing a destroyed one crashes (driver 580). `id`:
     * context_id() when it was alive. */
    CurrentContext(const CudaDriver *driver, CUcontext context, unsigned long long id)
        : driver_(driver),
          result_(driver->context_is_alive(context, id) ? driver->ctx_push_current(context)
                                                        : CUDA_ERROR_CONTEXT_IS_DESTROYED) {}
    CurrentContext(const CurrentContext &) = delete;
    CurrentContext &operator=(const CurrentContext &) = delete;
    ~CurrentContext() {
        if (result_ == CUDA_SUCCESS) {
            CUcontext popped;
            driver_->ctx_pop_current(&popped);
        }
    }
    /** An error when the context is gone. */
    CUresult result() const { return result_; }

private:
    const CudaDriver *driver_;
    CUresult result_;
};

/** While it lives, driver calls of this thread do not disturb stream captures (CUDA driver API
 * manual, cuThreadExchangeStreamCaptureMode). */
class RelaxedCapture {
public:
    explicit RelaxedCapture(const CudaDriver *driver) : driver_(driver) {
        relaxed_ = driver->thread_exchange_capture_mode != nullptr &&
                   driver->thread_exchange_capture_mode(&mode_) == CUDA_SUCCESS;
    }
    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;
    /** False when the driver has no such function or refused. */
    bool relaxed() const { return relaxed_; }
    ~RelaxedCapture() {
        if (relaxed_) {
            driver_->thread_exchange_capture_mode(&mode_);
        }
    }

private:
    const CudaDriver *driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then that of the thread
    bool relaxed_;
};

}  // namespace gpushm
