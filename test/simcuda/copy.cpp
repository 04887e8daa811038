// SPDX-License-Identifier: BSD-3-Clause
// Copies. When a call returns follows the manual of the driver API, "API synchronization behavior".
#include "copy.hpp"

#include "call.hpp"
#include "stream.hpp"

#include <cstring>

namespace simcuda {

CUresult Span::make(std::uintptr_t address, std::size_t bytes, bool may_be_pageable, Span* span)
{
    span->address_ = address;
    span->bytes_ = bytes;
    const auto known = Allocations::get().find_overlap(address, bytes);
    if (known == nullptr) {
        return may_be_pageable && address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    span->allocation_ = Allocations::get().find(address);
    const bool within = span->allocation_ != nullptr && span->allocation_->contains(address, bytes);
    return within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void Span::stage()
{
    const char* source = reinterpret_cast<const char*>(address_);
    staged_ = std::make_shared<std::vector<char>>(source, source + bytes_);
}

char* Span::engine_address() const
{
    if (staged_ != nullptr) {
        return staged_->data();
    }
    if (allocation_ == nullptr) {
        return reinterpret_cast<char*>(address_);
    }
    return allocation_->live ? allocation_->engine_address(address_) : nullptr;
}

namespace {

struct Copy {
    CUdeviceptr to;
    CUdeviceptr from;
    std::size_t bytes;
    // The Dto and Hto functions do not take pageable memory where they name a device.
    bool to_may_be_pageable = true;
    bool from_may_be_pageable = true;
};

Operation make_operation(const Span& to, const Span& from, std::size_t bytes)
{
    Operation operation;
    operation.bytes = bytes;
    operation.duration = Engine::get().transfer_time(bytes);
    operation.run = [to, from, bytes](Lock& lock) -> CUresult {
        char* target = to.engine_address();
        const char* source = from.engine_address();
        if (target == nullptr || source == nullptr) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        lock.unlock();
        std::memmove(target, source, bytes);
        lock.lock();
        return CUDA_SUCCESS;
    };
    return operation;
}

// Whether the call returns only when the copy is complete.
bool waits(const Context& context, const Span& to, const Span& from, bool asynchronous, bool staged)
{
    if (to.host() && from.host()) {
        return true;
    }
    if (asynchronous) {
        return to.pageable();
    }
    const bool device_to_device = !to.host() && !from.host();
    return context.sync_memops() || to.sync_memops() || from.sync_memops() ||
           (!device_to_device && !staged);
}

CUresult copy(Lock& lock, const std::shared_ptr<Stream>& stream, const Copy& what,
              bool asynchronous)
{
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->context.sticky_error != CUDA_SUCCESS || what.bytes == 0) {
        return stream->context.sticky_error;
    }
    Span to;
    Span from;
    CUresult result = Span::make(what.to, what.bytes, what.to_may_be_pageable, &to);
    if (result == CUDA_SUCCESS) {
        result = Span::make(what.from, what.bytes, what.from_may_be_pageable, &from);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool staged = from.pageable() && !to.host();
    if (staged) {
        from.stage();
    }
    const Position done =
        Engine::get().enqueue(lock, stream, make_operation(to, from, what.bytes));
    if (waits(stream->context, to, from, asynchronous, staged)) {
        Engine::get().wait(lock, done);
    }
    return stream->context.sticky_error;
}

CUresult copy_now(Call& call, const Copy& what)
{
    return call.with_context([&](Lock& lock, Context& context) {
        return copy(lock, context.legacy_stream, what, false);
    });
}

// On a stream that the program made no context need be current (seen with driver 580).
CUresult copy_async(Call& call, const Copy& what, CUstream stream)
{
    return call.initialised([&](Lock& lock) -> CUresult {
        if (const auto made = find_made_stream(stream)) {
            return copy(lock, made, what, true);
        }
        Context* context = nullptr;
        const CUresult state = current_context(&context);
        return state != CUDA_SUCCESS ? state
                                     : copy(lock, find_stream(stream, *context), what, true);
    });
}

CUdeviceptr address_of(const void* pointer)
{
    return reinterpret_cast<CUdeviceptr>(pointer);
}

bool contexts_alive(CUcontext one, CUcontext other)
{
    const Context* first = find_context(one);
    const Context* second = find_context(other);
    return first != nullptr && first->alive && second != nullptr && second->alive;
}

} // namespace

} // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes)
{
    static Call call{"cuMemcpy"};
    return copy_now(call, {to, from, bytes});
}

extern "C" CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes)
{
    static Call call{"cuMemcpyHtoD"};
    return copy_now(call, {to, address_of(from), bytes, false, true});
}

extern "C" CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes)
{
    static Call call{"cuMemcpyDtoH"};
    return copy_now(call, {address_of(to), from, bytes, true, false});
}

extern "C" CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes)
{
    static Call call{"cuMemcpyDtoD"};
    return copy_now(call, {to, from, bytes, false, false});
}

extern "C" CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                 CUcontext from_context, std::size_t bytes)
{
    static Call call{"cuMemcpyPeer"};
    return call.with_context([&](Lock& lock, Context& context) -> CUresult {
        return contexts_alive(to_context, from_context)
                   ? copy(lock, context.legacy_stream, {to, from, bytes, false, false}, false)
                   : CUDA_ERROR_INVALID_CONTEXT;
    });
}

extern "C" CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                  CUstream stream)
{
    static Call call{"cuMemcpyAsync"};
    return copy_async(call, {to, from, bytes}, stream);
}

extern "C" CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                                         CUstream stream)
{
    static Call call{"cuMemcpyHtoDAsync"};
    return copy_async(call, {to, address_of(from), bytes, false, true}, stream);
}

extern "C" CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes,
                                         CUstream stream)
{
    static Call call{"cuMemcpyDtoHAsync"};
    return copy_async(call, {address_of(to), from, bytes, true, false}, stream);
}

extern "C" CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                         CUstream stream)
{
    static Call call{"cuMemcpyDtoDAsync"};
    return copy_async(call, {to, from, bytes, false, false}, stream);
}

extern "C" CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                      CUcontext from_context, std::size_t bytes, CUstream stream)
{
    static Call call{"cuMemcpyPeerAsync"};
    return call.with_context([&](Lock& lock, Context& context) -> CUresult {
        return contexts_alive(to_context, from_context)
                   ? copy(lock, find_stream(stream, context), {to, from, bytes, false, false}, true)
                   : CUDA_ERROR_INVALID_CONTEXT;
    });
}
