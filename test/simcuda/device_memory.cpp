// SPDX-License-Identifier: BSD-3-Clause
// Device and managed memory: allocation, release and the questions about it.
#include "allocation.hpp"
#include "call.hpp"
#include "device.hpp"
#include "device_heap.hpp"
#include "engine.hpp"
#include "residency.hpp"

namespace simcuda {

namespace {

constexpr std::size_t kPitchBytes = 512;

CUresult allocate(Context &context, CUdeviceptr *address, std::size_t bytes) {
    auto allocation =
        allocate_on_device(Allocation::Kind::device, *context.device, &context, bytes);
    if (allocation == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = allocation->base;
    trace_result(*address);
    Allocations::get().add(std::move(allocation));
    return CUDA_SUCCESS;
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr *address, std::size_t bytes) {
    static Call call{"cuMemAlloc", Call::Kind::unsafe};
    return call.given(bytes).with_context([&](Lock &, Context &context) -> CUresult {
        if (address == nullptr || bytes == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return allocate(context, address, bytes);
    });
}

extern "C" CUresult cuMemAllocPitch_v2(CUdeviceptr *address, std::size_t *pitch,
                                       std::size_t row_bytes, std::size_t rows,
                                       unsigned int element_bytes) {
    static Call call{"cuMemAllocPitch", Call::Kind::unsafe};
    return call.given(row_bytes, rows, element_bytes)
        .with_context([&](Lock &, Context &context) -> CUresult {
            const bool known_element =
                element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
            if (address == nullptr || pitch == nullptr || row_bytes == 0 || rows == 0 ||
                !known_element) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const std::size_t padded = (row_bytes + kPitchBytes - 1) / kPitchBytes * kPitchBytes;
            const CUresult result = allocate(context, address, padded * rows);
            if (result == CUDA_SUCCESS) {
                *pitch = padded;
            }
            return result;
        });
}

extern "C" CUresult cuMemAllocManaged(CUdeviceptr *address, std::size_t bytes, unsigned int flags) {
    static Call call{"cuMemAllocManaged", Call::Kind::unsafe};
    return call.given(bytes, flags).with_context([&](Lock &, Context &context) -> CUresult {
        const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
        if (address == nullptr || bytes == 0 || !known) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto allocation = allocate_managed(context, bytes);
        if (allocation == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        allocation->flags = flags;
        *address = allocation->base;
        trace_result(*address);
        Allocations::get().add(std::move(allocation));
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemFree_v2(CUdeviceptr address) {
    static Call call{"cuMemFree", Call::Kind::unsafe};
    return call.given(address).with_context([&](Lock &lock, Context &current) -> CUresult {
        if (address == 0) {
            return CUDA_SUCCESS;
        }
        const auto allocation = Allocations::get().find(address);
        if (allocation == nullptr || allocation->base != address || allocation->host() ||
            allocation->kind == Allocation::Kind::ipc ||
            allocation->kind == Allocation::Kind::vmm) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const bool of_pool = allocation->context == nullptr;
        Engine::get().wait_to_free(lock, of_pool ? current : *allocation->context);
        if (!allocation->live) {
            return CUDA_ERROR_INVALID_VALUE;  // freed by another thread meanwhile
        }
        Allocations::get().release(allocation);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemGetInfo_v2(std::size_t *free_bytes, std::size_t *total_bytes) {
    static Call call{"cuMemGetInfo"};
    return call.with_context([&](Lock &, Context &context) -> CUresult {
        if (free_bytes == nullptr || total_bytes == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *free_bytes = context.device->heap->free_bytes();
        *total_bytes = context.device->heap->total_bytes();
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, std::size_t *bytes,
                                            CUdeviceptr address) {
    static Call call{"cuMemGetAddressRange"};
    return call.given(address).with_context([&](Lock &, Context &) -> CUresult {
        const auto allocation = Allocations::get().find(address);
        if (allocation == nullptr) {
            return CUDA_ERROR_NOT_FOUND;
        }
        if (base != nullptr) {
            *base = allocation->base;
        }
        if (bytes != nullptr) {
            *bytes = allocation->bytes;
        }
        return CUDA_SUCCESS;
    });
}
