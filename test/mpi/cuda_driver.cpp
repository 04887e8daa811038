// SPDX-License-Identifier: BSD-3-Clause
// Finds libcuda.so.1 by dlopen; the _v2 names are those which cuda.h maps the plain names to.
#include "cuda_driver.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace gpushm::mpi_test {
namespace {

template <typename Function>
bool find(void *library, const char *name, Function &function, std::string *reason) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) {
        *reason = std::string("libcuda.so.1 has no ") + name;
    }
    return function != nullptr;
}

CUdeviceptr address(const void *memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
}

}  // namespace

const char *to_string(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::host:
            return "host";
        case MemoryKind::pinned:
            return "pinned";
        case MemoryKind::device:
            return "device";
        case MemoryKind::managed:
            return "managed";
    }
    return "unknown";
}

bool CudaDriver::resolve(void *library, std::string *reason) {
    return find(library, "cuInit", cu_.init, reason) &&
           find(library, "cuDriverGetVersion", cu_.driver_get_version, reason) &&
           find(library, "cuGetErrorName", cu_.get_error_name, reason) &&
           find(library, "cuDeviceGetCount", cu_.device_get_count, reason) &&
           find(library, "cuDeviceGet", cu_.device_get, reason) &&
           find(library, "cuDeviceGetName", cu_.device_get_name, reason) &&
           find(library, "cuDevicePrimaryCtxRetain", cu_.primary_ctx_retain, reason) &&
           find(library, "cuCtxSetCurrent", cu_.ctx_set_current, reason) &&
           find(library, "cuCtxSynchronize", cu_.ctx_synchronize, reason) &&
           find(library, "cuMemAlloc_v2", cu_.mem_alloc, reason) &&
           find(library, "cuMemAllocManaged", cu_.mem_alloc_managed, reason) &&
           find(library, "cuMemFree_v2", cu_.mem_free, reason) &&
           find(library, "cuMemHostAlloc", cu_.mem_host_alloc, reason) &&
           find(library, "cuMemFreeHost", cu_.mem_free_host, reason) &&
           find(library, "cuMemcpyHtoD_v2", cu_.memcpy_htod, reason) &&
           find(library, "cuMemcpyDtoH_v2", cu_.memcpy_dtoh, reason);
}

std::unique_ptr<CudaDriver> CudaDriver::open(std::string *reason) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *error = dlerror();
        *reason = error != nullptr ? error : "libcuda.so.1 cannot be opened";
        return nullptr;
    }
    std::unique_ptr<CudaDriver> driver(new CudaDriver);
    if (!driver->resolve(library, reason)) {
        return nullptr;
    }
    CUresult result = driver->cu_.init(0);
    if (result == CUDA_SUCCESS) {
        result = driver->cu_.device_get_count(&driver->device_count_);
    }
    if (result != CUDA_SUCCESS || driver->device_count_ == 0) {
        *reason = "the CUDA driver has no usable device (" + driver->error_name(result) + ")";
        return nullptr;
    }
    driver->cu_.driver_get_version(&driver->version_);
    return driver;
}

std::string CudaDriver::description() const {
    char name[256] = "?";
    CUdevice device;
    if (cu_.device_get(&device, 0) == CUDA_SUCCESS) {
        cu_.device_get_name(name, sizeof(name), device);
    }
    // cuDriverGetVersion: 1000 * major + 10 * minor (CUDA driver API, version management).
    return "CUDA driver " + std::to_string(version_ / 1000) + "." +
           std::to_string(version_ % 1000 / 10) + ", " + std::to_string(device_count_) +
           (device_count_ == 1 ? " device" : " devices") + ", device 0: " + name;
}

void CudaDriver::use_device(int ordinal) {
    CUdevice device;
    CUcontext context;
    const std::string which = " of device " + std::to_string(ordinal);
    require(cu_.device_get(&device, ordinal), "cuDeviceGet" + which);
    require(cu_.primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain" + which);
    require(cu_.ctx_set_current(context), "cuCtxSetCurrent" + which);
}

void *CudaDriver::allocate(MemoryKind kind, size_t size) {
    const std::string what = std::to_string(size) + " B of " + to_string(kind) + " memory";
    CUdeviceptr device = 0;
    void *host = nullptr;
    switch (kind) {
        case MemoryKind::pinned:
            require(cu_.mem_host_alloc(&host, size, CU_MEMHOSTALLOC_PORTABLE),
                    "cuMemHostAlloc, " + what);
            return host;
        case MemoryKind::device:
            require(cu_.mem_alloc(&device, size), "cuMemAlloc, " + what);
            break;
        case MemoryKind::managed:
            require(cu_.mem_alloc_managed(&device, size, CU_MEM_ATTACH_GLOBAL),
                    "cuMemAllocManaged, " + what);
            break;
        case MemoryKind::host:
            throw std::runtime_error("host memory does not come from the CUDA driver");
    }
    return reinterpret_cast<void *>(device);
}

void CudaDriver::release(MemoryKind kind, void *memory) {
    if (kind == MemoryKind::pinned) {
        require(cu_.mem_free_host(memory), "cuMemFreeHost");
    } else {
        require(cu_.mem_free(address(memory)), "cuMemFree");
    }
}

void CudaDriver::write(void *device_memory, const void *host_memory, size_t size) {
    if (size == 0) {
        return;
    }
    require(cu_.memcpy_htod(address(device_memory), host_memory, size), "cuMemcpyHtoD");
    // From pageable memory the call may return before the data is in device memory (CUDA driver
    // API, "API synchronization behavior"), and MPI may hand the buffer to other streams than the
    // default one.
    require(cu_.ctx_synchronize(), "cuCtxSynchronize");
}

void CudaDriver::read(void *host_memory, const void *device_memory, size_t size) {
    if (size != 0) {
        require(cu_.memcpy_dtoh(host_memory, address(device_memory), size), "cuMemcpyDtoH");
    }
}

std::string CudaDriver::error_name(CUresult result) const {
    const char *name = nullptr;
    cu_.get_error_name(result, &name);
    return name != nullptr ? name : "CUDA error " + std::to_string(result);
}

void CudaDriver::require(CUresult result, const std::string &what) const {
    if (result != CUDA_SUCCESS) {
        throw std::runtime_error(what + ": " + error_name(result));
    }
}

}  // namespace gpushm::mpi_test
