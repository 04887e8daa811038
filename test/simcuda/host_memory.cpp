// SPDX-License-Identifier: BSD-3-Clause
// Pinned host memory: allocated by the driver, or the application's own, registered.
#include "allocation.hpp"
#include "call.hpp"
#include "device.hpp"
#include "engine.hpp"
#include "settings.hpp"

namespace simcuda {

namespace {

bool may_pin(std::size_t bytes) {
    const std::size_t limit = Settings::get().max_pinned_bytes;
    const std::size_t used = Allocations::get().pinned_bytes();
    return used <= limit && bytes <= limit - used;
}

CUresult allocate_in(Context &context, void **address, std::size_t bytes, unsigned flags) {
    if (address == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto allocation = may_pin(bytes) ? allocate_pinned(context, bytes) : nullptr;
    if (allocation == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->flags = flags;
    *address = allocation->view->address();
    trace_result(*address);
    Allocations::get().add(std::move(allocation));
    return CUDA_SUCCESS;
}

// The pinned memory that begins at the address, or null.
std::shared_ptr<Allocation> find_pinned(void *pointer, Allocation::Kind kind) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    auto allocation = Allocations::get().find(address);
    const bool found =
        allocation != nullptr && allocation->kind == kind && allocation->base == address;
    return found ? allocation : nullptr;
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemAllocHost_v2(void **address, std::size_t bytes) {
    static Call call{"cuMemAllocHost", Call::Kind::unsafe};
    return call.given(bytes).with_context(
        [&](Lock &, Context &context) { return allocate_in(context, address, bytes, 0); });
}

extern "C" CUresult cuMemHostAlloc(void **address, std::size_t bytes, unsigned int flags) {
    static Call call{"cuMemHostAlloc", Call::Kind::unsafe};
    return call.given(bytes, flags).with_context([&](Lock &, Context &context) -> CUresult {
        constexpr unsigned kKnown =
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
        return (flags & ~kKnown) != 0 ? CUDA_ERROR_INVALID_VALUE
                                      : allocate_in(context, address, bytes, flags);
    });
}

extern "C" CUresult cuMemFreeHost(void *pointer) {
    static Call call{"cuMemFreeHost", Call::Kind::unsafe};
    return call.given(pointer).with_context([&](Lock &lock, Context &) -> CUresult {
        const auto allocation = find_pinned(pointer, Allocation::Kind::pinned);
        if (allocation == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Engine::get().wait_to_free(lock, *allocation->context);
        Allocations::get().release(allocation);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemHostRegister_v2(void *pointer, std::size_t bytes, unsigned int flags) {
    static Call call{"cuMemHostRegister", Call::Kind::unsafe};
    return call.given(pointer, bytes, flags)
        .with_context([&](Lock &lock, Context &context) -> CUresult {
            Engine::get().wait_for_frees(lock, context);
            constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                        CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
            const auto address = reinterpret_cast<std::uintptr_t>(pointer);
            if (pointer == nullptr || bytes == 0 || address + bytes < address ||
                (flags & ~kKnown) != 0) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const auto known = Allocations::get().find_overlap(address, bytes);
            if (known != nullptr) {
                return known->host() ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                     : CUDA_ERROR_INVALID_VALUE;
            }
            if (!pages_mapped(address, bytes)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (!may_pin(bytes)) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            auto allocation = std::make_shared<Allocation>(Allocation::Kind::registered,
                                                           context.device, &context);
            allocation->base = address;
            allocation->bytes = bytes;
            allocation->flags = flags;
            allocation->pages = std::make_unique<KnownHostPages>(address, bytes);
            allocation->engine_base = allocation->pages->engine_address();
            Allocations::get().add(std::move(allocation));
            return CUDA_SUCCESS;
        });
}

extern "C" CUresult cuMemHostUnregister(void *pointer) {
    static Call call{"cuMemHostUnregister", Call::Kind::unsafe};
    return call.given(pointer).with_context([&](Lock &lock, Context &) -> CUresult {
        const auto allocation = find_pinned(pointer, Allocation::Kind::registered);
        if (allocation == nullptr) {
            return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        }
        Engine::get().wait_to_free(lock, *allocation->context);
        Allocations::get().release(allocation);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer,
                                                 unsigned int flags) {
    static Call call{"cuMemHostGetDevicePointer"};
    return call.given(pointer, flags).with_context([&](Lock &, Context &) -> CUresult {
        const auto allocation = Allocations::get().find(reinterpret_cast<std::uintptr_t>(pointer));
        if (address == nullptr || flags != 0 || allocation == nullptr || !allocation->host()) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *address = reinterpret_cast<CUdeviceptr>(pointer);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer) {
    static Call call{"cuMemHostGetFlags"};
    return call.given(pointer).with_context([&](Lock &, Context &) -> CUresult {
        const auto allocation = Allocations::get().find(reinterpret_cast<std::uintptr_t>(pointer));
        if (flags == nullptr || allocation == nullptr || !allocation->host()) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags = allocation->flags;
        return CUDA_SUCCESS;
    });
}
