// SPDX-License-Identifier: BSD-3-Clause
// The stack of current contexts of each thread, and the functions that work on the current one.
#include "call.hpp"
#include "context.hpp"
#include "device.hpp"
#include "engine.hpp"
#include "stream.hpp"

namespace simcuda {

namespace {

constexpr int kMaxDepth = 256;

// No destructor, so that it can be used while a thread ends.
thread_local Context *stack[kMaxDepth];
thread_local int depth = 0;

Context *top() {
    return depth > 0 ? stack[depth - 1] : nullptr;
}

}  // namespace

CUresult current_context(Context **context) {
    *context = top();
    if (*context == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return (*context)->alive ? (*context)->sticky_error.load() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult push_context(Context &context) {
    if (depth == kMaxDepth) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[depth++] = &context;
    return CUDA_SUCCESS;
}

void pop_if_current(Context &context) {
    if (top() == &context) {
        --depth;
    }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    static Call call{"cuCtxPushCurrent"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        Context *context = find_context(handle);
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        return context->alive ? push_context(*context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    });
}

extern "C" CUresult cuCtxPopCurrent_v2(CUcontext *handle) {
    static Call call{"cuCtxPopCurrent"};
    return call.initialised([&](Lock &) -> CUresult {
        if (depth == 0) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (handle != nullptr) {
            *handle = handle_of(top());
        }
        --depth;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxSetCurrent(CUcontext handle) {
    static Call call{"cuCtxSetCurrent"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        if (handle == nullptr) {
            depth -= depth > 0 ? 1 : 0;
            return CUDA_SUCCESS;
        }
        Context *context = find_context(handle);
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (!context->alive) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        if (depth == 0) {
            return push_context(*context);
        }
        stack[depth - 1] = context;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxGetCurrent(CUcontext *handle) {
    static Call call{"cuCtxGetCurrent"};
    return call.initialised([&](Lock &) -> CUresult {
        if (handle == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *handle = handle_of(top());
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxGetDevice(CUdevice *device) {
    static Call call{"cuCtxGetDevice"};
    return call.with_context([&](Lock &, Context &context) -> CUresult {
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *device = context.device->ordinal;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxGetFlags(unsigned int *flags) {
    static Call call{"cuCtxGetFlags"};
    return call.with_context([&](Lock &, Context &context) -> CUresult {
        if (flags == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags = context.flags;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxSetFlags(unsigned int flags) {
    static Call call{"cuCtxSetFlags"};
    return call.given(flags).with_context([&](Lock &, Context &context) -> CUresult {
        if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        context.flags = flags;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxGetId(CUcontext handle, unsigned long long *id) {
    static Call call{"cuCtxGetId"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        const Context *context = handle != nullptr ? find_context(handle) : top();
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (!context->alive) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        if (id == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *id = context->id;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
    static Call call{"cuCtxGetApiVersion"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        const Context *context = handle != nullptr ? find_context(handle) : top();
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (version == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *version = 3020;
        return CUDA_SUCCESS;
    });
}

static CUresult synchronize(Lock &lock, Context &context) {
    const CUresult capturing = refuse_capturing(context);
    if (capturing != CUDA_SUCCESS) {
        return capturing;
    }
    Engine::get().wait_for_context(lock, context);
    return context.sticky_error;
}

extern "C" CUresult cuCtxSynchronize(void) {
    static Call call{"cuCtxSynchronize", Call::Kind::unsafe};
    return call.with_context(
        [&](Lock &lock, Context &context) { return synchronize(lock, context); });
}

extern "C" CUresult cuCtxSynchronize_v2(CUcontext handle) {
    static Call call{"cuCtxSynchronize_v2", Call::Kind::unsafe};
    return call.given(handle).initialised([&](Lock &lock) -> CUresult {
        Context *const context = find_context(handle);
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        return context->alive ? synchronize(lock, *context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    });
}

extern "C" CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    static Call call{"cuCtxGetStreamPriorityRange"};
    return call.with_context([&](Lock &, Context &) -> CUresult {
        if (least != nullptr) {
            *least = kMinPriority;
        }
        if (greatest != nullptr) {
            *greatest = kGreatestPriority;
        }
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
    static Call call{"cuCtxEnablePeerAccess"};
    return call.given(handle, flags).with_context([&](Lock &, Context &context) -> CUresult {
        Context *peer = find_context(handle);
        if (flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (peer == nullptr || !peer->alive || peer == &context) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (peer->device == context.device || !can_access(*context.device, *peer->device)) {
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        }
        return context.peers.insert(peer).second ? CUDA_SUCCESS
                                                 : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
}

extern "C" CUresult cuCtxDisablePeerAccess(CUcontext handle) {
    static Call call{"cuCtxDisablePeerAccess"};
    return call.given(handle).with_context([&](Lock &, Context &context) -> CUresult {
        Context *peer = find_context(handle);
        if (peer == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        return context.peers.erase(peer) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    });
}
