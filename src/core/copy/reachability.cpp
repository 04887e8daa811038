// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/reachability.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/host_registration_cache.hpp"

namespace gpushm {
namespace {

/** Of memory that names no context: memory of pools, and mappings of virtual memory management,
 * which may differ from one to the next. A range that would take long to ask for counts as
 * inaccessible. */
bool may_access(CUcontext context, const void *address, size_t length) {
    // The granularity of mappings (cuMemGetAllocationGranularity) of all GPUs up to H200.
    constexpr CUdeviceptr kUnit = 2u << 20;
    constexpr size_t kMaxUnits = 64;
    if (length > kMaxUnits * kUnit) {
        return false;
    }
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, context);
    const auto accessible = [driver](CUdeviceptr byte) {
        int flags = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
        CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
        void *value = &flags;
        return driver->pointer_get_attributes(1, &attribute, &value, byte) == CUDA_SUCCESS &&
               flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    };
    const CUdeviceptr end = device_pointer(address) + length;
    bool all = current.result() == CUDA_SUCCESS;
    for (CUdeviceptr byte = device_pointer(address); all && byte < end;
         byte = (byte / kUnit + 1) * kUnit) {
        all = accessible(byte);
    }
    return all;
}

}  // namespace

bool covers(const MemoryInfo &info, const void *address, size_t length) {
    const auto *begin = static_cast<const unsigned char *>(info.base);
    const auto *from = static_cast<const unsigned char *>(address);
    return from >= begin && length <= info.length &&
           static_cast<size_t>(from - begin) <= info.length - length;
}

bool is_of_gpu(const MemoryInfo &info, const void *address, size_t length) {
    return info.kind == MemoryKind::device && info.ipc_capable && covers(info, address, length);
}

bool is_of_same_gpu(const MemoryInfo &other, const MemoryInfo &info, const void *address,
                    size_t length) {
    return is_of_gpu(info, address, length) && info.device == other.device &&
           info.context == other.context;
}

bool kernels_reach(const MemoryInfo &info, const void *address, size_t length, CUdevice device,
                   CUcontext context) {
    if (info.kind == MemoryKind::pinned) {
        // Memory that HostRegistrationCache has locked stays locked only for the holder of a pin.
        return covers(info, address, length) &&
               !HostRegistrationCache::instance().has_locked(address, length) &&
               is_mapped_for_kernels(address);
    }
    if (info.kind != MemoryKind::device || info.device != device ||
        !covers(info, address, length)) {
        return false;
    }
    if (info.context != nullptr) {
        return info.ipc_capable && info.context == context;
    }
    return info.ipc_capable || may_access(context, address, length);
}

}  // namespace gpushm
