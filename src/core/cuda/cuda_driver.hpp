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
 * to. Thread safe, as the driver is. */
struct CudaDriver {
    /** The driver, or null on a machine without one. The first call opens the library; it makes no
     * context and does not call cuInit. Later calls cost a load. */
    static const CudaDriver *get();

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

    CUresult (*init)(unsigned flags);
    CUresult (*driver_get_version)(int *version);
    CUresult (*get_error_name)(CUresult error, const char **name);

    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*device_get_count)(int *count);
    CUresult (*device_get_name)(char *name, int length, CUdevice device);
    CUresult (*device_get_uuid)(CUuuid *uuid, CUdevice device);
    CUresult (*device_get_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*device_get_pci_bus_id)(char *id, int length, CUdevice device);
    CUresult (*device_total_mem)(size_t *bytes, CUdevice device);
    CUresult (*device_can_access_peer)(int *can_access, CUdevice device, CUdevice peer);
    CUresult (*device_primary_ctx_retain)(CUcontext *context, CUdevice device);
    CUresult (*device_primary_ctx_release)(CUdevice device);

    CUresult (*ctx_get_current)(CUcontext *context);
    CUresult (*ctx_get_device)(CUdevice *device);
    CUresult (*ctx_push_current)(CUcontext context);
    CUresult (*ctx_pop_current)(CUcontext *context);
    CUresult (*ctx_get_id)(CUcontext context, unsigned long long *id);  // null before CUDA 12.0

    CUresult (*stream_create)(CUstream *stream, unsigned flags);
    CUresult (*stream_destroy)(CUstream stream);
    CUresult (*stream_synchronize)(CUstream stream);
    CUresult (*stream_query)(CUstream stream);
    CUresult (*event_create)(CUevent *event, unsigned flags);
    CUresult (*event_destroy)(CUevent event);
    CUresult (*event_record)(CUevent event, CUstream stream);
    CUresult (*event_query)(CUevent event);

    CUresult (*mem_alloc)(CUdeviceptr *address, size_t bytes);
    CUresult (*mem_alloc_managed)(CUdeviceptr *address, size_t bytes, unsigned flags);
    CUresult (*mem_free)(CUdeviceptr address);
    CUresult (*mem_host_register)(void *address, size_t bytes, unsigned flags);
    CUresult (*mem_host_unregister)(void *address);
    CUresult (*memcpy_sync)(CUdeviceptr destination, CUdeviceptr source, size_t bytes);
    CUresult (*memcpy_async)(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                             CUstream stream);
    CUresult (*memcpy_2d_async)(const CUDA_MEMCPY2D *copy, CUstream stream);
    CUresult (*memset_d8)(CUdeviceptr address, unsigned char value, size_t count);
    CUresult (*pointer_get_attributes)(unsigned count, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr address);
    CUresult (*pointer_set_attribute)(const void *value, CUpointer_attribute attribute,
                                      CUdeviceptr address);

    CUresult (*ipc_get_mem_handle)(CUipcMemHandle *handle, CUdeviceptr address);
    CUresult (*ipc_open_mem_handle)(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);
    CUresult (*ipc_close_mem_handle)(CUdeviceptr address);

    // ---- null where the driver is older than the function
    CUresult (*thread_exchange_capture_mode)(CUstreamCaptureMode *mode);
    CUresult (*primary_ctx_get_state)(CUdevice device, unsigned *flags, int *active);
    CUresult (*ctx_record_event)(CUcontext context, CUevent event);  // CUDA 12.5
    CUresult (*stream_is_capturing)(CUstream stream, CUstreamCaptureStatus *status);

    // Virtual memory management, all of CUDA 11.2; null together.
    CUresult (*mem_retain_allocation_handle)(CUmemGenericAllocationHandle *handle, void *address);
    CUresult (*mem_export_to_shareable_handle)(void *shareable, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type,
                                               unsigned long long flags);
    CUresult (*mem_import_from_shareable_handle)(CUmemGenericAllocationHandle *handle,
                                                 void *shareable, CUmemAllocationHandleType type);
    CUresult (*mem_address_reserve)(CUdeviceptr *address, size_t bytes, size_t alignment,
                                    CUdeviceptr fixed, unsigned long long flags);
    CUresult (*mem_address_free)(CUdeviceptr address, size_t bytes);
    CUresult (*mem_map)(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*mem_unmap)(CUdeviceptr address, size_t bytes);
    CUresult (*mem_set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t count);
    CUresult (*mem_release)(CUmemGenericAllocationHandle handle);

    // Kernels of our own; null together.
    CUresult (*module_load_data)(CUmodule *module, const void *image);
    CUresult (*module_unload)(CUmodule module);
    CUresult (*module_get_function)(CUfunction *function, CUmodule module, const char *name);
    CUresult (*module_get_global)(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                  const char *name);
    CUresult (*ctx_get_stream_priority_range)(int *least, int *greatest);
    CUresult (*stream_create_with_priority)(CUstream *stream, unsigned flags, int priority);
    CUresult (*launch_kernel)(CUfunction function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, CUstream stream, void **parameters,
                              void **extra);
    CUresult (*mem_host_get_device_pointer)(CUdeviceptr *device, void *host, unsigned flags);
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
