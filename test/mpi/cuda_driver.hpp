// SPDX-License-Identifier: BSD-3-Clause
// The few functions of the CUDA driver which the MPI tests need, taken from libcuda.so.1 at run
// time: the same program runs with the real driver, with a simulated one, and without any.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <string>

namespace gpushm::mpi_test {

// Where a buffer lies.
enum class MemoryKind { host, pinned, device, managed };

const char *to_string(MemoryKind kind);

class CudaDriver {
public:
    // Opens and initialises the driver. Null when there is no driver or no device; `*reason` then
    // says why.
    static std::unique_ptr<CudaDriver> open(std::string *reason);

    // E.g. "CUDA driver 13.0, 2 devices, device 0: NVIDIA H200".
    std::string description() const;

    int device_count() const { return device_count_; }

    // Makes the primary context of a device current to the calling thread. Throws
    // std::runtime_error.
    void use_device(int ordinal);

    // Pinned, device or managed memory of the current context. Throws std::runtime_error.
    void *allocate(MemoryKind kind, size_t size);
    void release(MemoryKind kind, void *memory);

    // Copies through the driver and waits until the copy is done. Throws std::runtime_error.
    void write(void *device_memory, const void *host_memory, size_t size);
    void read(void *host_memory, const void *device_memory, size_t size);

private:
    struct Functions {
        decltype(&cuInit) init;
        decltype(&cuDriverGetVersion) driver_get_version;
        decltype(&cuGetErrorName) get_error_name;
        decltype(&cuDeviceGetCount) device_get_count;
        decltype(&cuDeviceGet) device_get;
        decltype(&cuDeviceGetName) device_get_name;
        decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain;
        decltype(&cuCtxSetCurrent) ctx_set_current;
        decltype(&cuCtxSynchronize) ctx_synchronize;
        decltype(&cuMemAlloc) mem_alloc;
        decltype(&cuMemAllocManaged) mem_alloc_managed;
        decltype(&cuMemFree) mem_free;
        decltype(&cuMemHostAlloc) mem_host_alloc;
        decltype(&cuMemFreeHost) mem_free_host;
        decltype(&cuMemcpyHtoD) memcpy_htod;
        decltype(&cuMemcpyDtoH) memcpy_dtoh;
    };

    CudaDriver() = default;
    bool resolve(void *library, std::string *reason);
    std::string error_name(CUresult result) const;
    void require(CUresult result, const std::string &what) const;

    Functions cu_{};
    int device_count_ = 0;
    int version_ = 0;
};

}  // namespace gpushm::mpi_test
