// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver library, opened at run time: gpushm never links libcuda.
#pragma once

#include <cuda.h>

namespace gpushm {

/** Functions of libcuda.so.1, in the versions that cuda.h of CUDA 11.4 and later maps their names to.
 *  Thread safe, as the driver is. */
struct CudaDriver {
    /** The driver, or null on a machine without one. The first call opens the library (no context is
     *  made, cuInit is not called); later calls cost a load. */
    static const CudaDriver *get();

    /** "CUDA_ERROR_..." */
    const char *error_name(CUresult result) const;

    /** Tells contexts apart that have the same handle, as the primary context of a device has before
     *  and after cudaDeviceReset. 0 where the driver does not tell (before CUDA 12.0). */
    unsigned long long context_id(CUcontext context) const;

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
    CUresult (*memset_d8)(CUdeviceptr address, unsigned char value, size_t count);
    CUresult (*pointer_get_attributes)(unsigned count, CUpointer_attribute *attributes,
                                       void **data, CUdeviceptr address);
    CUresult (*pointer_set_attribute)(const void *value, CUpointer_attribute attribute,
                                      CUdeviceptr address);
};

/** Makes a context current while it lives. */
class CurrentContext {
public:
    CurrentContext(const CudaDriver *driver, CUcontext context)
        : driver_(driver), result_(driver->ctx_push_current(context)) {}
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

}  // namespace gpushm
