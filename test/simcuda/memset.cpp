// SPDX-License-Identifier: BSD-3-Clause
// cuMemset: asynchronous in both forms, except of pinned host memory.
#include "call.hpp"
#include "copy.hpp"
#include "stream.hpp"

#include <cstring>

namespace simcuda {

namespace {

template <typename Value>
CUresult fill(Lock& lock, Context& context, CUstream handle, CUdeviceptr to, Value value,
              std::size_t count, bool asynchronous)
{
    std::shared_ptr<Stream> stream;
    CUresult result = find_usable_stream(handle, context, &stream);
    if (result != CUDA_SUCCESS || count == 0) {
        return result;
    }
    Span span;
    const std::size_t bytes = count * sizeof(Value);
    result = Span::make(to, bytes, {*stream->context.device, true}, &span);
    if (result != CUDA_SUCCESS || to % sizeof(Value) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Operation operation;
    operation.bytes = bytes;
    operation.duration = Engine::get().transfer_time(bytes);
    operation.run = [span, value, count](Lock& held) -> CUresult {
        char* target = span.access();
        if (target == nullptr) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        held.unlock();
        for (std::size_t i = 0; i < count; ++i) {
            std::memcpy(target + i * sizeof(Value), &value, sizeof(Value));
        }
        held.lock();
        return CUDA_SUCCESS;
    };
    const Position done = Engine::get().enqueue(lock, stream, std::move(operation));
    const bool sync_memops = span.sync_memops() || stream->context.sync_memops();
    if (!asynchronous && (span.host() || sync_memops)) {
        Engine::get().wait(lock, done);
    }
    return stream->context.sticky_error;
}

template <typename Value>
CUresult fill_now(Call& call, CUdeviceptr to, Value value, std::size_t count)
{
    return call.given(to, value, count).with_context([&](Lock& lock, Context& context) {
        return fill(lock, context, CU_STREAM_LEGACY, to, value, count, false);
    });
}

template <typename Value>
CUresult fill_async(Call& call, CUdeviceptr to, Value value, std::size_t count, CUstream stream)
{
    return call.given(to, value, count, stream).with_context([&](Lock& lock, Context& context) {
        return fill(lock, context, stream, to, value, count, true);
    });
}

} // namespace

} // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t count)
{
    static Call call{"cuMemsetD8", Call::Kind::unsafe};
    return fill_now(call, to, value, count);
}

extern "C" CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t count)
{
    static Call call{"cuMemsetD16", Call::Kind::unsafe};
    return fill_now(call, to, value, count);
}

extern "C" CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, std::size_t count)
{
    static Call call{"cuMemsetD32", Call::Kind::unsafe};
    return fill_now(call, to, value, count);
}

extern "C" CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count,
                                    CUstream stream)
{
    static Call call{"cuMemsetD8Async"};
    return fill_async(call, to, value, count, stream);
}

extern "C" CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count,
                                     CUstream stream)
{
    static Call call{"cuMemsetD16Async"};
    return fill_async(call, to, value, count, stream);
}

extern "C" CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, std::size_t count,
                                     CUstream stream)
{
    static Call call{"cuMemsetD32Async"};
    return fill_async(call, to, value, count, stream);
}
