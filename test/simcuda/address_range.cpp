// SPDX-License-Identifier: BSD-3-Clause
// Reserved addresses, and what is mapped there.
#include "address_range.hpp"

#include "allocation.hpp"
#include "call.hpp"
#include "engine.hpp"
#include "physical_memory.hpp"

#include <map>
#include <vector>

namespace simcuda {

namespace {

constexpr std::size_t kHostPageBytes = 4096;

std::map<std::uintptr_t, std::shared_ptr<AddressRange>> &ranges() {
    static auto &all = *new std::map<std::uintptr_t, std::shared_ptr<AddressRange>>;
    return all;
}

using Mapped = std::vector<std::shared_ptr<Allocation>>;

// What is mapped in the range, if that is nothing but whole mappings without holes between them;
// else nothing.
Mapped whole_mappings(std::uintptr_t address, std::size_t bytes) {
    Mapped mapped;
    for (std::uintptr_t next = address; next < address + bytes;) {
        auto allocation = Allocations::get().find(next);
        if (allocation == nullptr || allocation->kind != Allocation::Kind::vmm ||
            allocation->base != next || allocation->bytes > address + bytes - next) {
            return {};
        }
        next += allocation->bytes;
        mapped.push_back(std::move(allocation));
    }
    return mapped;
}

CUresult map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle) {
    auto memory = MemoryHandles::find(handle);
    auto range = AddressRange::find(address);
    if (memory == nullptr || range == nullptr || bytes == 0 || bytes % kPageBytes != 0 ||
        address % kPageBytes != 0 || bytes > memory->bytes() || !range->contains(address, bytes) ||
        Allocations::get().find_overlap(address, bytes) != nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!range->map(address, bytes, *memory)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    auto allocation =
        std::make_shared<Allocation>(Allocation::Kind::vmm, &memory->device(), nullptr);
    allocation->base = address;
    allocation->bytes = bytes;
    allocation->engine_base = range->engine_address(address);
    allocation->virtual_memory = std::make_unique<VirtualMemory>(
        VirtualMemory{std::move(range), std::move(memory), handle, {}});
    Allocations::get().add(std::move(allocation));
    return CUDA_SUCCESS;
}

// The device that may access the memory, checked.
CUresult find_accessor(const CUmemLocation &location, const Mapped &mapped, Device **device) {
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = find_device(location.id);
    for (const auto &allocation : mapped) {
        if (*device == nullptr || !can_access(**device, *allocation->device)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc *descriptions,
                    std::size_t count) {
    const Mapped mapped = whole_mappings(address, bytes);
    if (mapped.empty() || descriptions == nullptr || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
        Device *device = nullptr;
        const unsigned flags = descriptions[i].flags;
        const CUresult result = find_accessor(descriptions[i].location, mapped, &device);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (const auto &allocation : mapped) {
            allocation->virtual_memory->access[device] = flags;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace

bool AddressRange::map(std::uintptr_t address, std::size_t bytes, const PhysicalMemory &memory) {
    return alias_->fill(address - base(), memory.file(), bytes);
}

void AddressRange::unmap(std::uintptr_t address, std::size_t bytes) {
    alias_->clear(address - base(), bytes);
}

std::shared_ptr<AddressRange> AddressRange::find(std::uintptr_t address) {
    auto entry = ranges().upper_bound(address);
    if (entry == ranges().begin()) {
        return nullptr;
    }
    --entry;
    return entry->second->contains(address, 1) ? entry->second : nullptr;
}

}  // namespace simcuda

using namespace simcuda;

// The address that is asked for is a hint, which is not taken.
extern "C" CUresult cuMemAddressReserve(CUdeviceptr *address, std::size_t bytes,
                                        std::size_t alignment, CUdeviceptr,
                                        unsigned long long flags) {
    static Call call{"cuMemAddressReserve", Call::Kind::unsafe};
    return call.given(bytes, alignment, flags).initialised([&](Lock &) -> CUresult {
        if (address == nullptr || bytes == 0 || bytes % kHostPageBytes != 0 ||
            (alignment & (alignment - 1)) != 0 || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto view = Mapping::reserved(bytes, alignment);
        auto alias = Mapping::reserved(bytes, alignment);
        if (view == nullptr || alias == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        auto range = std::make_shared<AddressRange>(std::move(view), std::move(alias));
        *address = range->base();
        trace_result(*address);
        ranges()[range->base()] = std::move(range);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
    static Call call{"cuMemAddressFree", Call::Kind::unsafe};
    return call.given(address, bytes).initialised([&](Lock &) -> CUresult {
        const auto found = ranges().find(address);
        if (found == ranges().end() || found->second->bytes() != bytes ||
            Allocations::get().find_overlap(address, bytes) != nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        ranges().erase(found);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags) {
    static Call call{"cuMemMap", Call::Kind::unsafe};
    return call.given(address, bytes, offset, handle, flags).initialised([&](Lock &) -> CUresult {
        return offset != 0 || flags != 0 ? CUDA_ERROR_INVALID_VALUE : map(address, bytes, handle);
    });
}

extern "C" CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
    static Call call{"cuMemUnmap", Call::Kind::unsafe};
    return call.given(address, bytes).initialised([&](Lock &) -> CUresult {
        const Mapped mapped = whole_mappings(address, bytes);
        if (mapped.empty()) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (const auto &allocation : mapped) {
            Allocations::get().release(allocation);
            allocation->virtual_memory->range->unmap(allocation->base, allocation->bytes);
        }
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes,
                                   const CUmemAccessDesc *descriptions, std::size_t count) {
    static Call call{"cuMemSetAccess", Call::Kind::unsafe};
    return call.given(address, bytes, count).initialised([&](Lock &) {
        return set_access(address, bytes, descriptions, count);
    });
}

extern "C" CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr address) {
    static Call call{"cuMemGetAccess"};
    return call.given(address).initialised([&](Lock &) -> CUresult {
        const auto allocation = Allocations::get().find(address);
        if (flags == nullptr || location == nullptr || allocation == nullptr ||
            allocation->kind != Allocation::Kind::vmm ||
            location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const Device *device = find_device(location->id);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        *flags = allocation->access_of(*device);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
                                                void *address) {
    static Call call{"cuMemRetainAllocationHandle"};
    return call.given(address).initialised([&](Lock &) -> CUresult {
        const auto allocation = Allocations::get().find(reinterpret_cast<std::uintptr_t>(address));
        if (handle == nullptr || allocation == nullptr ||
            allocation->kind != Allocation::Kind::vmm) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const VirtualMemory &mapped = *allocation->virtual_memory;
        MemoryHandles::retain(mapped.handle, mapped.memory);
        *handle = mapped.handle;
        return CUDA_SUCCESS;
    });
}
