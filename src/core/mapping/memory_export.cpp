// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/memory_export.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/base/process.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/memory/memory_query.hpp"

namespace gpushm {
namespace {

std::optional<MappingHandle> refused(const BufferKey &name, CUresult result) {
    GPUSHM_LOG(debug,
               "the driver gives no handle of a GPU buffer of %llu bytes (%s): it is copied "
               "through host memory",
               static_cast<unsigned long long>(name.length), CudaDriver::get()->error_name(result));
    return std::nullopt;
}

std::optional<MappingHandle> export_by_ipc(const BufferKey &name, const MemoryInfo &info) {
    const CudaDriver *driver = CudaDriver::get();
    CurrentContext current(driver, info.context);
    MappingHandle handle = {BufferKey::Sharing::ipc_handle, {}, UniqueFd()};
    const CUresult result =
        current.result() == CUDA_SUCCESS
            ? driver->ipc_get_mem_handle(&handle.ipc, static_cast<CUdeviceptr>(name.base))
            : current.result();
    return result == CUDA_SUCCESS ? std::optional<MappingHandle>(std::move(handle))
                                  : refused(name, result);
}

std::optional<MappingHandle> export_by_descriptor(const BufferKey &name) {
    const CudaDriver *driver = CudaDriver::get();
    if (driver->mem_retain_allocation_handle == nullptr) {
        return std::nullopt;
    }
    CUmemGenericAllocationHandle memory = 0;
    CUresult result = driver->mem_retain_allocation_handle(&memory, to_pointer(name.base));
    if (result != CUDA_SUCCESS) {
        return refused(name, result);
    }
    int descriptor = -1;
    result = driver->mem_export_to_shareable_handle(&descriptor, memory,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    driver->mem_release(memory);
    return result == CUDA_SUCCESS
               ? std::optional<MappingHandle>(
                     MappingHandle{BufferKey::Sharing::file_descriptor, {}, UniqueFd(descriptor)})
               : refused(name, result);
}

}  // namespace

/** Does not use query_memory(), which remembers its answers: the address of memory that was just
 * freed may be of any kind for a moment, and then of a GPU again. */
bool still_allocated(const BufferKey &name) {
    MemoryInfo known;
    if (driver_hooks_installed() &&
        AllocationTable::instance().find(to_pointer(name.base), &known)) {
        return known.buffer_id == name.buffer_id;
    }
    unsigned long long id = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void *data = &id;
    return CudaDriver::get()->pointer_get_attributes(1, &attribute, &data, name.base) ==
               CUDA_SUCCESS &&
           id == name.buffer_id;
}

std::optional<MappingHandle> export_memory(const BufferKey &name) {
    if (name.owner != process_cookie().low || name.buffer_id == 0 || CudaDriver::get() == nullptr) {
        return std::nullopt;
    }
    // A peer sent the key: only the answer of the driver counts.
    const MemoryInfo info = look_up_memory(to_pointer(name.base));
    const BufferKey mine = make_buffer_key(info);
    if (mine.buffer_id != name.buffer_id || mine.base != name.base || mine.length != name.length) {
        return std::nullopt;
    }
    const RelaxedCapture relaxed(CudaDriver::get());
    switch (mine.sharing) {
        case BufferKey::Sharing::ipc_handle:
            return export_by_ipc(mine, info);
        case BufferKey::Sharing::file_descriptor:
            return export_by_descriptor(mine);
        default:
            return std::nullopt;
    }
}

}  // namespace gpushm
