// SPDX-License-Identifier: BSD-3-Clause
// Device memory that has a handle and no address yet.
#include "physical_memory.hpp"

#include "call.hpp"
#include "device_heap.hpp"
#include "file_use.hpp"
#include "mapping.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace simcuda {

namespace {

// The begin of the last page of the file.
struct Label {
    char magic[16];
    std::uint64_t bytes;  // of memory
    unsigned physical_device;
    unsigned handle_types;
};
constexpr char kMagic[16] = "simcuda memory";
constexpr std::size_t kLabelBytes = 4096;

// The place that the descriptors of other processes hold, see file_use.hpp.
constexpr off_t kUsedPlace = 0;

struct Handle {
    std::shared_ptr<PhysicalMemory> memory;
    unsigned references;
};

std::map<CUmemGenericAllocationHandle, Handle> &handles() {
    static auto &all = *new std::map<CUmemGenericAllocationHandle, Handle>;
    return all;
}

int make_file(const Label &label) {
    const int file = memfd_create("simcuda_memory", MFD_CLOEXEC);
    const auto end = static_cast<off_t>(label.bytes);
    if (file >= 0 && (ftruncate(file, end + static_cast<off_t>(kLabelBytes)) != 0 ||
                      pwrite(file, &label, sizeof(label), end) != sizeof(label))) {
        close(file);
        return -1;
    }
    return file;
}

bool read_label(int file, Label *label) {
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_size < static_cast<off_t>(kLabelBytes)) {
        return false;
    }
    const off_t end = status.st_size - static_cast<off_t>(kLabelBytes);
    return pread(file, label, sizeof(*label), end) == sizeof(*label) &&
           std::memcmp(label->magic, kMagic, sizeof(kMagic)) == 0 &&
           label->bytes == static_cast<std::uint64_t>(end);
}

// CUDA_SUCCESS if memory with these properties can be made.
CUresult check(const CUmemAllocationProp *properties) {
    if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(properties->location.id) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const unsigned types = properties->requestedHandleTypes;
    return (types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

PhysicalMemory::PhysicalMemory(int file, Device &device, std::size_t bytes, unsigned handle_types,
                               bool owned)
    : file_(file), device_(device), bytes_(bytes), handle_types_(handle_types), owned_(owned) {}

PhysicalMemory::~PhysicalMemory() {
    if (owned_) {
        device_.heap->give_back_file(file_, bytes_);
    } else {
        close(file_);
    }
}

std::shared_ptr<PhysicalMemory> PhysicalMemory::create(Device &device, std::size_t bytes,
                                                       unsigned handle_types) {
    if (!device.heap->take(bytes)) {
        return nullptr;
    }
    Label label{};
    std::memcpy(label.magic, kMagic, sizeof(kMagic));
    label.bytes = bytes;
    label.physical_device = device.physical;
    label.handle_types = handle_types;
    const int file = make_file(label);
    if (file < 0) {
        device.heap->give_back_file(-1, bytes);
        return nullptr;
    }
    return std::shared_ptr<PhysicalMemory>(
        new PhysicalMemory(file, device, bytes, handle_types, true));
}

std::shared_ptr<PhysicalMemory> PhysicalMemory::import(int descriptor) {
    Label label;
    Device *device = nullptr;
    if (read_label(descriptor, &label)) {
        device = find_physical_device(label.physical_device);
    }
    const int file = device == nullptr ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    return file < 0 ? nullptr
                    : std::shared_ptr<PhysicalMemory>(new PhysicalMemory(
                          file, *device, label.bytes, label.handle_types, false));
}

int PhysicalMemory::export_file() const {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", file_);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        hold_place(file, kUsedPlace);
    }
    return file;
}

CUmemGenericAllocationHandle MemoryHandles::add(std::shared_ptr<PhysicalMemory> memory) {
    static CUmemGenericAllocationHandle last = 0x5c000000;
    handles()[++last] = {std::move(memory), 1};
    return last;
}

std::shared_ptr<PhysicalMemory> MemoryHandles::find(CUmemGenericAllocationHandle handle) {
    const auto found = handles().find(handle);
    return found == handles().end() ? nullptr : found->second.memory;
}

void MemoryHandles::retain(CUmemGenericAllocationHandle handle,
                           std::shared_ptr<PhysicalMemory> memory) {
    Handle &entry = handles()[handle];
    entry.memory = std::move(memory);
    ++entry.references;
}

bool MemoryHandles::release(CUmemGenericAllocationHandle handle) {
    const auto found = handles().find(handle);
    if (found == handles().end()) {
        return false;
    }
    if (--found->second.references == 0) {
        handles().erase(found);
    }
    return true;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemGetAllocationGranularity(std::size_t *granularity,
                                                  const CUmemAllocationProp *properties,
                                                  CUmemAllocationGranularity_flags option) {
    static Call call{"cuMemGetAllocationGranularity"};
    return call.given(option).initialised([&](Lock &) -> CUresult {
        const bool known = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
                           option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        if (granularity == nullptr || !known) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result = check(properties);
        if (result == CUDA_SUCCESS) {
            *granularity = kPageBytes;
        }
        return result;
    });
}

extern "C" CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, std::size_t bytes,
                                const CUmemAllocationProp *properties, unsigned long long flags) {
    static Call call{"cuMemCreate", Call::Kind::unsafe};
    return call.given(bytes, flags).initialised([&](Lock &) -> CUresult {
        if (handle == nullptr || flags != 0 || bytes == 0 || bytes % kPageBytes != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult result = check(properties);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        auto memory = PhysicalMemory::create(*find_device(properties->location.id), bytes,
                                             properties->requestedHandleTypes);
        if (memory == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *handle = MemoryHandles::add(std::move(memory));
        trace_result(*handle);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    static Call call{"cuMemRelease", Call::Kind::unsafe};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        return MemoryHandles::release(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

extern "C" CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                           CUmemGenericAllocationHandle handle) {
    static Call call{"cuMemGetAllocationPropertiesFromHandle"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        const auto memory = MemoryHandles::find(handle);
        if (properties == nullptr || memory == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *properties = {};
        properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties->requestedHandleTypes =
            static_cast<CUmemAllocationHandleType>(memory->handle_types());
        properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties->location.id = memory->device().ordinal;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemExportToShareableHandle(void *shareable,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags) {
    static Call call{"cuMemExportToShareableHandle", Call::Kind::unsafe};
    return call.given(handle, type).initialised([&](Lock &) -> CUresult {
        const auto memory = MemoryHandles::find(handle);
        if (shareable == nullptr || memory == nullptr || flags != 0 ||
            type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            (memory->handle_types() & type) == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const int file = memory->export_file();
        if (file < 0) {
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
        std::memcpy(shareable, &file, sizeof(file));
        trace_result(file);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                   void *shareable,
                                                   CUmemAllocationHandleType type) {
    static Call call{"cuMemImportFromShareableHandle", Call::Kind::unsafe};
    return call.given(shareable, type).initialised([&](Lock &) -> CUresult {
        if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto memory =
            PhysicalMemory::import(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
        if (memory == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *handle = MemoryHandles::add(std::move(memory));
        trace_result(*handle);
        return CUDA_SUCCESS;
    });
}
