// SPDX-License-Identifier: BSD-3-Clause
// Creation and end of contexts, primary ones included.
#include "context.hpp"

#include "allocation.hpp"
#include "array.hpp"
#include "call.hpp"
#include "device.hpp"
#include "engine.hpp"
#include "event.hpp"
#include "module.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace simcuda {

namespace {

constexpr unsigned kKnownFlags = CU_CTX_FLAGS_MASK;

std::vector<std::unique_ptr<Context>> &all_contexts() {
    static auto &all = *new std::vector<std::unique_ptr<Context>>;
    return all;
}

Context *new_context(Device &device, bool primary) {
    auto context = std::make_unique<Context>();
    context->device = &device;
    context->primary = primary;
    all_contexts().push_back(std::move(context));
    return all_contexts().back().get();
}

}  // namespace

CUresult start_context(Lock &, Context &context) {
    static unsigned long long last_id = 0;
    if (Settings::get().exclusive) {
        context.claim = DeviceClaim::make(context.device->physical);
        if (context.claim == nullptr) {
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
        }
    }
    context.alive = true;
    context.id = ++last_id;
    context.sticky_error = CUDA_SUCCESS;
    context.legacy_stream = std::make_shared<Stream>(context, Stream::Kind::legacy);
    return CUDA_SUCCESS;
}

void end_context(Lock &lock, Context &context) {
    Engine::get().wait_for_context(lock, context);
    context.alive = false;
    context.peers.clear();
    for (auto &other : all_contexts()) {
        other->peers.erase(&context);
    }
    destroy_streams(context);
    destroy_events(context);
    destroy_modules(context);
    destroy_arrays(context);
    Allocations::get().release_all(context);
    context.legacy_stream.reset();
    context.claim.reset();
}

Context *new_primary_context(Device &device) {
    return new_context(device, true);
}

Context *find_context(CUcontext handle) {
    for (auto &context : all_contexts()) {
        if (handle_of(context.get()) == handle) {
            return context.get();
        }
    }
    return nullptr;
}

}  // namespace simcuda

using namespace simcuda;

static CUresult create_context(CUcontext *handle, unsigned flags, CUdevice ordinal) {
    static Call call{"cuCtxCreate", Call::Kind::unsafe};
    return call.given(flags, ordinal).initialised([&](Lock &lock) -> CUresult {
        Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (handle == nullptr || (flags & ~kKnownFlags) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Context *context = new_context(*device, false);
        context->flags = flags;
        const CUresult result = start_context(lock, *context);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        *handle = handle_of(context);
        trace_result(*handle);
        return push_context(*context);
    });
}

extern "C" CUresult cuCtxCreate_v2(CUcontext *handle, unsigned int flags, CUdevice ordinal) {
    return create_context(handle, flags, ordinal);
}

#if CUDA_VERSION >= 12050
extern "C" CUresult cuCtxCreate_v4(CUcontext *handle, CUctxCreateParams *params, unsigned int flags,
                                   CUdevice ordinal) {
    // Execution affinity and CIG belong to MPS and graphics, which are not simulated.
    const bool plain =
        params == nullptr || (params->numExecAffinityParams == 0 && params->cigParams == nullptr);
    return plain ? create_context(handle, flags, ordinal) : CUDA_ERROR_NOT_SUPPORTED;
}
#endif

extern "C" CUresult cuCtxDestroy_v2(CUcontext handle) {
    static Call call{"cuCtxDestroy", Call::Kind::unsafe};
    return call.given(handle).initialised([&](Lock &lock) -> CUresult {
        Context *context = find_context(handle);
        if (context == nullptr || context->primary) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (!context->alive) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        end_context(lock, *context);
        pop_if_current(*context);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice ordinal) {
    static Call call{"cuDevicePrimaryCtxRetain"};
    return call.given(ordinal).initialised([&](Lock &lock) -> CUresult {
        Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (handle == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Context &context = *device->primary_context;
        if (!context.alive) {
            context.flags = device->primary_flags;
            const CUresult result = start_context(lock, context);
            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
        ++device->primary_retain_count;
        *handle = handle_of(&context);
        trace_result(*handle);
        return CUDA_SUCCESS;
    });
}

static CUresult release_primary(CUdevice ordinal) {
    static Call call{"cuDevicePrimaryCtxRelease"};
    return call.given(ordinal).initialised([&](Lock &lock) -> CUresult {
        Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (device->primary_retain_count == 0) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (--device->primary_retain_count == 0 && device->primary_context->alive) {
            end_context(lock, *device->primary_context);
        }
        return CUDA_SUCCESS;
    });
}

static CUresult reset_primary(CUdevice ordinal) {
    static Call call{"cuDevicePrimaryCtxReset", Call::Kind::unsafe};
    return call.given(ordinal).initialised([&](Lock &lock) -> CUresult {
        Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        // The manual: who retained it still has to release it.
        if (device->primary_context->alive) {
            end_context(lock, *device->primary_context);
        }
        return CUDA_SUCCESS;
    });
}

static CUresult set_primary_flags(CUdevice ordinal, unsigned flags) {
    static Call call{"cuDevicePrimaryCtxSetFlags"};
    return call.given(ordinal, flags).initialised([&](Lock &) -> CUresult {
        Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if ((flags & ~kKnownFlags) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        device->primary_flags = flags;
        device->primary_context->flags = flags;
        return CUDA_SUCCESS;
    });
}

#undef cuDevicePrimaryCtxRelease
extern "C" CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    return release_primary(ordinal);
}

extern "C" CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return release_primary(ordinal);
}

#undef cuDevicePrimaryCtxReset
extern "C" CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) {
    return reset_primary(ordinal);
}

extern "C" CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    return reset_primary(ordinal);
}

#undef cuDevicePrimaryCtxSetFlags
extern "C" CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
    return set_primary_flags(ordinal, flags);
}

extern "C" CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    return set_primary_flags(ordinal, flags);
}

extern "C" CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active) {
    static Call call{"cuDevicePrimaryCtxGetState"};
    return call.given(ordinal).initialised([&](Lock &) -> CUresult {
        const Device *device = find_device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (flags == nullptr || active == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags = device->primary_flags;
        *active = device->primary_context->alive ? 1 : 0;
        return CUDA_SUCCESS;
    });
}
