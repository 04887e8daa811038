// SPDX-License-Identifier: BSD-3-Clause
// cuMemset: asynchronous in both forms, except of pinned host memory.
#include "copy.hpp"

#include <cstring>

namespace simcuda {

namespace {

// The values that a call sets: those of a row follow each other.
struct Area {
    CUdeviceptr begin;
    std::size_t width;  // values of a row
    std::size_t height = 1;
    std::size_t pitch = 0;  // bytes from row to row, of no meaning for a single one
};

// From the first byte to the last one. CUDA_ERROR_INVALID_VALUE if the area is malformed, too.
template <typename Value>
CUresult find_memory(const Area &area, const Device &device, Span *span) {
    const std::size_t row_bytes = area.width * sizeof(Value);
    const bool rows = area.height > 1;
    if (area.begin % sizeof(Value) != 0 ||
        (rows && (area.pitch % sizeof(Value) != 0 || area.pitch < row_bytes))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return Span::make(area.begin, (area.height - 1) * area.pitch + row_bytes, {device, true}, span);
}

template <typename Value>
void fill(char *begin, const Area &area, Value value) {
    for (std::size_t row = 0; row < area.height; ++row) {
        char *const target = begin + row * area.pitch;
        for (std::size_t i = 0; i < area.width; ++i) {
            std::memcpy(target + i * sizeof(Value), &value, sizeof(Value));
        }
    }
}

template <typename Value>
CUresult fill_in(Lock &lock, const std::shared_ptr<Stream> &stream, const Area &area, Value value,
                 bool asynchronous) {
    if (area.width == 0 || area.height == 0) {
        return CUDA_SUCCESS;
    }
    Span span;
    CUresult result = find_memory<Value>(area, *stream->context.device, &span);
    if (result == CUDA_SUCCESS && !asynchronous) {
        result = refuse_capturing(*stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    Operation operation;
    operation.bytes = area.width * area.height * sizeof(Value);
    operation.duration = Engine::get().transfer_time(operation.bytes);
    operation.run = [span, area, value](Lock &held) -> CUresult {
        char *target = span.access();
        if (target == nullptr) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        held.unlock();
        fill(target, area, value);
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
CUresult fill_by_call(Call &call, const Area &area, Value value, const Manner &manner) {
    call.given(area.begin, value, area.width, area.height, area.pitch);
    if (manner.asynchronous) {
        call.given(manner.stream);
    }
    return call.with_context([&](Lock &lock, Context &context) -> CUresult {
        std::shared_ptr<Stream> stream;
        const CUresult result = find_usable_stream(manner.stream, context, &stream);
        return result != CUDA_SUCCESS ? result
                                      : fill_in(lock, stream, area, value, manner.asynchronous);
    });
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

// The functions for values of one type.
#define SIMCUDA_MEMSETS(bits, Value)                                                             \
    extern "C" CUresult cuMemsetD##bits##_v2(CUdeviceptr to, Value value, std::size_t count) {   \
        static Call call{"cuMemsetD" #bits, Call::Kind::unsafe};                                 \
        return fill_by_call(call, {to, count}, value, kSynchronous);                             \
    }                                                                                            \
    extern "C" CUresult cuMemsetD##bits##Async(CUdeviceptr to, Value value, std::size_t count,   \
                                               CUstream stream) {                                \
        static Call call{"cuMemsetD" #bits "Async"};                                             \
        return fill_by_call(call, {to, count}, value, asynchronous(stream));                     \
    }                                                                                            \
    extern "C" CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, std::size_t pitch, Value value,   \
                                               std::size_t width, std::size_t height) {          \
        static Call call{"cuMemsetD2D" #bits, Call::Kind::unsafe};                               \
        return fill_by_call(call, {to, width, height, pitch}, value, kSynchronous);              \
    }                                                                                            \
    extern "C" CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, std::size_t pitch, Value value, \
                                                 std::size_t width, std::size_t height,          \
                                                 CUstream stream) {                              \
        static Call call{"cuMemsetD2D" #bits "Async"};                                           \
        return fill_by_call(call, {to, width, height, pitch}, value, asynchronous(stream));      \
    }

SIMCUDA_MEMSETS(8, unsigned char)
SIMCUDA_MEMSETS(16, unsigned short)
SIMCUDA_MEMSETS(32, unsigned int)
