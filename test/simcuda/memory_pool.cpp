// SPDX-License-Identifier: BSD-3-Clause
// Memory that is allocated and freed in the order of a stream.
#include "memory_pool.hpp"

#include "allocation.hpp"
#include "call.hpp"
#include "device_heap.hpp"
#include "stream.hpp"

namespace simcuda {

MemoryPool *MemoryPool::find(CUmemoryPool handle) {
    for (const auto &device : devices()) {
        if (device->default_pool->handle() == handle) {
            return device->default_pool.get();
        }
    }
    return nullptr;
}

namespace {

// The address is valid at once; that other streams use it later is the application's concern.
CUresult allocate(MemoryPool *pool, CUdeviceptr *address, std::size_t bytes) {
    if (pool == nullptr || address == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto allocation = allocate_on_device(Allocation::Kind::pool, pool->device(), nullptr, bytes);
    if (allocation == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->pool = pool;
    *address = allocation->base;
    trace_result(*address);
    Allocations::get().add(std::move(allocation));
    return CUDA_SUCCESS;
}

// Graphs of the simulation do not allocate memory.
CUresult find_pool_stream(CUstream handle, Context &context, std::shared_ptr<Stream> *stream) {
    const CUresult result = find_usable_stream(handle, context, stream);
    const bool capturing = result == CUDA_SUCCESS && (*stream)->capture != nullptr;
    return capturing ? CUDA_ERROR_NOT_SUPPORTED : result;
}

CUresult get_pool(Call &call, CUmemoryPool *pool, CUdevice ordinal) {
    return call.given(ordinal).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (pool == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *pool = device->default_pool->handle();
        return CUDA_SUCCESS;
    });
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    static Call call{"cuDeviceGetDefaultMemPool"};
    return get_pool(call, pool, device);
}

extern "C" CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    static Call call{"cuDeviceGetMemPool"};
    return get_pool(call, pool, device);
}

extern "C" CUresult cuMemAllocAsync(CUdeviceptr *address, std::size_t bytes, CUstream handle) {
    static Call call{"cuMemAllocAsync"};
    return call.given(bytes, handle).with_context([&](Lock &, Context &context) -> CUresult {
        std::shared_ptr<Stream> stream;
        const CUresult result = find_pool_stream(handle, context, &stream);
        return result != CUDA_SUCCESS
                   ? result
                   : allocate(stream->context.device->default_pool.get(), address, bytes);
    });
}

extern "C" CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, std::size_t bytes,
                                            CUmemoryPool pool, CUstream handle) {
    static Call call{"cuMemAllocFromPoolAsync"};
    return call.given(bytes, pool, handle).with_context([&](Lock &, Context &context) -> CUresult {
        std::shared_ptr<Stream> stream;
        const CUresult result = find_pool_stream(handle, context, &stream);
        return result != CUDA_SUCCESS ? result : allocate(MemoryPool::find(pool), address, bytes);
    });
}

extern "C" CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    static Call call{"cuMemFreeAsync"};
    return call.given(address, handle).with_context([&](Lock &lock, Context &context) -> CUresult {
        std::shared_ptr<Stream> stream;
        const CUresult result = find_pool_stream(handle, context, &stream);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        const auto allocation = Allocations::get().find(address);
        if (allocation == nullptr || allocation->base != address || !allocation->in_heap()) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Operation operation;
        operation.run = [allocation](Lock &) -> CUresult {
            if (!allocation->live) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            Allocations::get().release(allocation);
            return CUDA_SUCCESS;
        };
        Engine::get().enqueue(lock, stream, std::move(operation));
        return CUDA_SUCCESS;
    });
}
