// SPDX-License-Identifier: BSD-3-Clause
// What the driver tells about a pointer.
#include "address_range.hpp"
#include "allocation.hpp"
#include "call.hpp"
#include "device.hpp"
#include "memory_pool.hpp"
#include "physical_memory.hpp"

#include <cstring>

namespace simcuda {

namespace {

template <typename Value>
CUresult give(void *data, Value value) {
    std::memcpy(data, &value, sizeof(value));
    return CUDA_SUCCESS;
}

CUmemoryPool pool_of(const Allocation &allocation) {
    return allocation.pool != nullptr ? allocation.pool->handle() : nullptr;
}

unsigned handle_types_of(const Allocation &allocation) {
    return allocation.virtual_memory != nullptr ? allocation.virtual_memory->memory->handle_types()
                                                : 0;
}

// Without a context only what all contexts of a GPU can access.
unsigned access_from(const Context *current, const Allocation &allocation) {
    if (current != nullptr) {
        return allocation.access_of(*current->device);
    }
    return allocation.virtual_memory == nullptr ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// Of memory that the driver knows; `current` is null if there is no current context. The types of
// `data` are those of the manual.
CUresult get_attribute(const Allocation &allocation, CUpointer_attribute attribute,
                       CUdeviceptr address, const Context *current, void *data) {
    const AddressRange *range =
        allocation.virtual_memory != nullptr ? allocation.virtual_memory->range.get() : nullptr;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return give(data, handle_of(allocation.context));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return give<unsigned>(data,
                                  allocation.host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return give(data, address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            return allocation.on_device() ? CUDA_ERROR_INVALID_VALUE
                                          : give(data, reinterpret_cast<void *>(address));
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return give<int>(data, allocation.sync_memops);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            return give(data, allocation.id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return give<int>(data, allocation.kind == Allocation::Kind::managed);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            // Of imported memory it is the device that has mapped it (driver 580).
            return give<int>(data, allocation.kind == Allocation::Kind::ipc
                                       ? allocation.context->device->ordinal
                                       : allocation.device->ordinal);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return give<int>(data, allocation.kind == Allocation::Kind::device);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return give<CUdeviceptr>(data, range != nullptr ? range->base() : allocation.base);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return give<std::size_t>(data, range != nullptr ? range->bytes() : allocation.bytes);
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return give<int>(data, 1);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return give<std::uint64_t>(data, handle_types_of(allocation));
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:  // the bits are those of CUmemAccess_flags
            return give<int>(data, static_cast<int>(access_from(current, allocation)));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return give(data, pool_of(allocation));
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// What cuPointerGetAttributes gives instead of an error, for memory that the driver does not know
// or an attribute that the memory does not have.
CUresult give_default(CUpointer_attribute attribute, void *data) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return give<std::uint64_t>(data, 0);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return give<int>(data, CU_DEVICE_INVALID);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return give<int>(data, 0);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

// Of reserved addresses where nothing is mapped.
CUresult get_reserved_attribute(const AddressRange &range, CUpointer_attribute attribute,
                                void *data) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return give<CUdeviceptr>(data, range.base());
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return give<std::size_t>(data, range.bytes());
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return give<int>(data, 0);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult look_up(CUpointer_attribute attribute, CUdeviceptr address, void *data) {
    const auto allocation = Allocations::get().find(address);
    if (allocation == nullptr) {
        const auto range = AddressRange::find(address);
        return range == nullptr ? CUDA_ERROR_INVALID_VALUE
                                : get_reserved_attribute(*range, attribute, data);
    }
    Context *current = nullptr;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
        current_context(&current) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS) {
        (void)current_context(&current);  // null without one
    }
    return get_attribute(*allocation, attribute, address, current, data);
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                          CUdeviceptr address) {
    static Call call{"cuPointerGetAttribute"};
    return call.given(attribute, address).initialised([&](Lock &) -> CUresult {
        return data == nullptr ? CUDA_ERROR_INVALID_VALUE : look_up(attribute, address, data);
    });
}

extern "C" CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes,
                                           void **data, CUdeviceptr address) {
    static Call call{"cuPointerGetAttributes"};
    return call.given(count, address).initialised([&](Lock &) -> CUresult {
        if (count == 0 || attributes == nullptr || data == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (unsigned i = 0; i < count; ++i) {
            if (look_up(attributes[i], address, data[i]) != CUDA_SUCCESS) {
                const CUresult result = give_default(attributes[i], data[i]);
                if (result != CUDA_SUCCESS) {
                    return result;
                }
            }
        }
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                          CUdeviceptr address) {
    static Call call{"cuPointerSetAttribute", Call::Kind::unsafe};
    return call.given(attribute, address).initialised([&](Lock &) -> CUresult {
        const auto allocation = Allocations::get().find(address);
        if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
            allocation == nullptr || allocation->host() ||
            allocation->kind == Allocation::Kind::vmm) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        unsigned set = 0;
        std::memcpy(&set, value, sizeof(set));
        allocation->sync_memops = set != 0;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemRangeGetAttribute(void *data, std::size_t data_bytes,
                                           CUmem_range_attribute attribute, CUdeviceptr address,
                                           std::size_t bytes) {
    static Call call{"cuMemRangeGetAttribute"};
    return call.given(attribute, address, bytes).initialised([&](Lock &) -> CUresult {
        const auto allocation = Allocations::get().find(address);
        if (data == nullptr || data_bytes != sizeof(int) || bytes == 0 || allocation == nullptr ||
            allocation->kind != Allocation::Kind::managed ||
            !allocation->contains(address, bytes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        switch (attribute) {
            case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
                return give<int>(data, 0);
            case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
                return give<int>(data, CU_DEVICE_INVALID);  // cannot be set
            case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
                return give<int>(data, allocation->last_prefetch);
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    });
}
