// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory_info.hpp"

#include "core/cuda_driver.hpp"
#include "core/log.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace gpushm {
namespace {

CUdeviceptr device_pointer(const void *address) { return reinterpret_cast<CUdeviceptr>(address); }

/** Buffer ids are unique for the life of the process and never used again (CUDA driver API manual,
 *  CU_POINTER_ATTRIBUTE_BUFFER_ID), so one that is remembered cannot mean another allocation. A
 *  collision in this table only costs another driver call. */
class SyncedBuffers {
public:
    bool contains(unsigned long long id) const {
        return slot(id).load(std::memory_order_relaxed) == id;
    }
    void insert(unsigned long long id) { slot(id).store(id, std::memory_order_relaxed); }

private:
    static constexpr size_t kSlots = 4096;
    using Slot = std::atomic<unsigned long long>;
    Slot &slot(unsigned long long id) { return slots_[id % kSlots]; }
    const Slot &slot(unsigned long long id) const { return slots_[id % kSlots]; }
    Slot slots_[kSlots] = {};
};

SyncedBuffers synced_buffers;

void set_sync_memops(const CudaDriver *driver, const void *address, unsigned long long buffer_id) {
    if (synced_buffers.contains(buffer_id)) {
        return;
    }
    // Refused for managed memory and memory pools, which the attribute does not apply to.
    unsigned enable = 1;
    driver->pointer_set_attribute(&enable, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                  device_pointer(address));
    synced_buffers.insert(buffer_id);
}

/** Asked without touching it: the kernel reads a set of signals there before it refuses the operation
 *  -1 (rt_sigprocmask(2)). */
bool cpu_can_read(const void *address) {
    const uintptr_t word = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{7};
    return syscall(SYS_rt_sigprocmask, -1, word, nullptr, 8) == 0 || errno != EFAULT;
}

MemoryInfo unanswered(const CudaDriver *driver, const void *address, CUresult result) {
    MemoryInfo info;
    // CUDA_ERROR_NOT_INITIALIZED: nobody in this process can have GPU memory.
    if (result != CUDA_ERROR_NOT_INITIALIZED && !cpu_can_read(address)) {
        GPUSHM_LOG_ONCE(error, "cuPointerGetAttributes failed (%s): copies of GPU memory fail; see "
                        "whether a kernel faulted (compute-sanitizer)", driver->error_name(result));
        info.kind = MemoryKind::device;
        info.device = CU_DEVICE_INVALID;
    }
    return info;
}

}  // namespace

const char *memory_kind_name(MemoryKind kind) {
    switch (kind) {
    case MemoryKind::host: return "host";
    case MemoryKind::pinned: return "pinned";
    case MemoryKind::device: return "device";
    case MemoryKind::managed: return "managed";
    }
    return "unknown";
}

MemoryInfo query_memory(const void *address) {
    const CudaDriver *driver = CudaDriver::get();
    MemoryInfo info;
    if (driver == nullptr || address == nullptr) {
        return info;
    }
    unsigned memory_type = 0;
    unsigned is_managed = 0;
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *data[] = {&memory_type, &is_managed, &info.device, &info.context, &info.buffer_id};
    const CUresult result =
        driver->pointer_get_attributes(5, attributes, data, device_pointer(address));
    if (result != CUDA_SUCCESS) {
        return unanswered(driver, address, result);
    }
    if (is_managed != 0) {
        info.kind = MemoryKind::managed;
    } else if (memory_type == CU_MEMORYTYPE_DEVICE) {
        info.kind = MemoryKind::device;
    } else if (memory_type == CU_MEMORYTYPE_HOST) {
        info.kind = MemoryKind::pinned;
    }
    if (info.needs_gpu()) {
        set_sync_memops(driver, address, info.buffer_id);
    }
    return info;
}

bool query_allocation(const void *address, void **base, size_t *length) {
    const CudaDriver *driver = CudaDriver::get();
    if (driver == nullptr) {
        return false;
    }
    // For an address that it does not know the driver succeeds and writes nothing.
    *base = nullptr;
    *length = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *data[] = {base, length};
    return driver->pointer_get_attributes(2, attributes, data, device_pointer(address)) ==
               CUDA_SUCCESS &&
           *length != 0;
}

}  // namespace gpushm
