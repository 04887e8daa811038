// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/memory_query.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/unfinished_copies.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/memory/buffer_ids.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/memory/met_memory.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <optional>

namespace gpushm {
namespace {

BufferIds synced_buffers;
std::atomic<bool> met_gpu_memory{false};

/** Asks the operating system, which reads a set of signals there before it refuses the invalid
 * operation -1 (rt_sigprocmask(2)). */
bool cpu_can_read(const void *address) {
    const uintptr_t word = to_number(address) & ~uintptr_t{7};
    return syscall(SYS_rt_sigprocmask, -1, word, nullptr, 8) == 0 || errno != EFAULT;
}

/** Where the driver does not tell the allocation: the answer says nothing about other addresses. */
void name_one_byte(const void *address, MemoryInfo *info) {
    info->base = const_cast<void *>(address);
    info->length = 1;
}

/** Remembers a page of which the driver knows nothing. Not at a dead pointer, such as that of an
 * empty message: GPU memory may be allocated there without anything being unmapped before. */
void remember_host_page(const void *address) {
    if (KnownHostPages::instance().trusted() && cpu_can_read(address)) {
        KnownHostPages::instance().add(address);
    }
}

MemoryInfo unanswered(const CudaDriver *driver, const void *address, CUresult result) {
    MemoryInfo info;
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        remember_host_page(address);  // the process cannot have GPU memory yet
    } else if (!cpu_can_read(address)) {
        GPUSHM_LOG_ONCE(error,
                        "cuPointerGetAttributes failed (%s): copies of GPU memory fail; see "
                        "whether a kernel faulted (compute-sanitizer)",
                        driver->error_name(result));
        info.kind = MemoryKind::device;
        info.device = CU_DEVICE_INVALID;
        name_one_byte(address, &info);
    }
    return info;
}

/** Whether hooks see the end of this memory: memory of cuMemAlloc, cuMemAllocManaged and the like,
 * page-locked memory, and mappings of memory that other processes can open. Memory of pools comes
 * and goes in the order of a stream, which they do not see. */
bool can_be_remembered(const MemoryInfo &info, CUmemoryPool pool) {
    if (pool != nullptr || info.length == 0) {
        return false;
    }
    switch (info.kind) {
        case MemoryKind::host:
            return false;
        case MemoryKind::pinned:
            return true;
        case MemoryKind::managed:
            return info.context != nullptr;
        case MemoryKind::device:
            return info.is_of_mem_alloc() || info.exportable_by_fd;
    }
    return false;
}

/** The driver's answer, and whether it can be remembered. */
MemoryInfo ask_driver(const CudaDriver *driver, const void *address, bool *remember) {
    MemoryInfo info;
    // For an address that it does not know the driver may succeed and write nothing.
    unsigned memory_type = 0;
    unsigned is_managed = 0;
    unsigned ipc_capable = 0;
    uint64_t handle_types = 0;
    CUmemoryPool pool = nullptr;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *data[] = {&memory_type, &is_managed,  &info.device, &info.context, &info.buffer_id,
                    &info.base,   &info.length, &ipc_capable, &handle_types, &pool};
    const CUresult result = driver->pointer_get_attributes(std::size(attributes), attributes, data,
                                                           device_pointer(address));
    if (result != CUDA_SUCCESS) {
        return unanswered(driver, address, result);
    }
    if (is_managed != 0) {
        info.kind = MemoryKind::managed;
    } else if (memory_type == CU_MEMORYTYPE_DEVICE) {
        info.kind = MemoryKind::device;
    } else if (memory_type == CU_MEMORYTYPE_HOST) {
        info.kind = MemoryKind::pinned;
    } else {
        remember_host_page(address);
    }
    info.ipc_capable = ipc_capable != 0;
    info.exportable_by_fd = (handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    *remember = driver_hooks_installed() && can_be_remembered(info, pool);
    if (info.needs_gpu()) {
        if (info.length == 0) {
            name_one_byte(address, &info);
        }
        if (!early_returns_are_noted()) {
            be_synchronous(info, address);
        }
    }
    return info;
}

/** Whether the answer is known without the driver: then it is in `*info`. */
bool is_known(const void *address, MemoryInfo *info) {
    return CudaDriver::get() == nullptr || address == nullptr ||
           KnownHostPages::instance().contains(address) ||
           (driver_hooks_installed() && AllocationTable::instance().find(address, info));
}

/** Asks the driver about memory that no message has met yet, or that is not remembered. */
MemoryInfo meet_memory(const void *address) {
    AllocationTable &table = AllocationTable::instance();
    const uint64_t generation = table.generation();
    bool remember = false;
    const MemoryInfo info = ask_driver(CudaDriver::get(), address, &remember);
    std::optional<MeetingMemory> meeting;
    if (remember) {
        meeting.emplace(info);
    }
    if (info.needs_gpu()) {
        met_gpu_memory.store(true, std::memory_order_relaxed);
        UnfinishedCopies::instance().wait_for_all();
    }
    if (remember) {
        table.add(info, generation);
    }
    return info;
}

}  // namespace

MemoryInfo query_any_memory(const void *address) {
    MemoryInfo info;
    if (!is_known(address, &info)) {
        return meet_memory(address);
    }
    if (info.needs_gpu()) {
        UnfinishedCopies::instance().wait_for(info.base);
    }
    return info;
}

bool gpu_memory_was_met() {
    return met_gpu_memory.load(std::memory_order_relaxed);
}

MemoryInfo look_up_memory(const void *address) {
    MemoryInfo info;
    bool remember = false;
    return is_known(address, &info) ? info : ask_driver(CudaDriver::get(), address, &remember);
}

void be_synchronous(const MemoryInfo &info, const void *address) {
    if (synced_buffers.contains(info.buffer_id)) {
        return;
    }
    const CudaDriver *driver = CudaDriver::get();
    // Without it the call ends a capture in another thread (driver 580).
    const RelaxedCapture relaxed(driver);
    unsigned enable = 1;
    driver->pointer_set_attribute(&enable, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                  device_pointer(address));
    synced_buffers.insert(info.buffer_id);
}

bool is_mapped_for_kernels(const void *address) {
    CUdeviceptr seen_by_gpu = 0;
    return CudaDriver::get()->mem_host_get_device_pointer(&seen_by_gpu, const_cast<void *>(address),
                                                          0) == CUDA_SUCCESS &&
           seen_by_gpu == device_pointer(address);
}

}  // namespace gpushm
