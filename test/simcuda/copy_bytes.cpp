// SPDX-License-Identifier: BSD-3-Clause
// Copies of consecutive bytes.
#include "copy.hpp"

namespace simcuda {

CUresult copy_bytes(Lock &lock, const std::shared_ptr<Stream> &stream, const Copy &what,
                    bool asynchronous) {
    if (what.bytes == 0) {
        return CUDA_SUCCESS;
    }
    Transfer transfer;
    const CUresult result = Transfer::make(what, *stream->context.device, &transfer);
    return result != CUDA_SUCCESS ? result : copy(lock, stream, {transfer}, asynchronous);
}

bool contexts_alive(CUcontext one, CUcontext other) {
    const Context *first = find_context(one);
    const Context *second = find_context(other);
    return first != nullptr && first->alive && second != nullptr && second->alive;
}

namespace {

CUresult copy_by_call(Call &call, const Copy &what, const Manner &manner) {
    return in_stream_of_call(call.given(what.to, what.from, what.bytes), manner,
                             [&](Lock &lock, const auto &stream) {
                                 return copy_bytes(lock, stream, what, manner.asynchronous);
                             });
}

CUresult copy_between_contexts(Call &call, const Copy &what, CUcontext to, CUcontext from,
                               const Manner &manner) {
    return in_stream_of_call(call.given(what.to, to, what.from, from, what.bytes), manner,
                             [&](Lock &lock, const auto &stream) {
                                 return contexts_alive(to, from)
                                            ? copy_bytes(lock, stream, what, manner.asynchronous)
                                            : CUDA_ERROR_INVALID_CONTEXT;
                             });
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    static Call call{"cuMemcpy"};
    return copy_by_call(call, {to, from, bytes}, kSynchronous);
}

extern "C" CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, std::size_t bytes) {
    static Call call{"cuMemcpyHtoD", Call::Kind::unsafe};
    return copy_by_call(call, {to, address_of(from), bytes, false, true}, kSynchronous);
}

extern "C" CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, std::size_t bytes) {
    static Call call{"cuMemcpyDtoH", Call::Kind::unsafe};
    return copy_by_call(call, {address_of(to), from, bytes, true, false}, kSynchronous);
}

extern "C" CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    static Call call{"cuMemcpyDtoD", Call::Kind::unsafe};
    return copy_by_call(call, {to, from, bytes, false, false}, kSynchronous);
}

extern "C" CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                 CUcontext from_context, std::size_t bytes) {
    static Call call{"cuMemcpyPeer", Call::Kind::unsafe};
    return copy_between_contexts(call, {to, from, bytes, false, false}, to_context, from_context,
                                 kSynchronous);
}

extern "C" CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                  CUstream stream) {
    static Call call{"cuMemcpyAsync"};
    return copy_by_call(call, {to, from, bytes}, asynchronous(stream));
}

extern "C" CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, std::size_t bytes,
                                         CUstream stream) {
    static Call call{"cuMemcpyHtoDAsync"};
    return copy_by_call(call, {to, address_of(from), bytes, false, true}, asynchronous(stream));
}

extern "C" CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, std::size_t bytes,
                                         CUstream stream) {
    static Call call{"cuMemcpyDtoHAsync"};
    return copy_by_call(call, {address_of(to), from, bytes, true, false}, asynchronous(stream));
}

extern "C" CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                         CUstream stream) {
    static Call call{"cuMemcpyDtoDAsync"};
    return copy_by_call(call, {to, from, bytes, false, false}, asynchronous(stream));
}

extern "C" CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                      CUcontext from_context, std::size_t bytes, CUstream stream) {
    static Call call{"cuMemcpyPeerAsync"};
    return copy_between_contexts(call, {to, from, bytes, false, false}, to_context, from_context,
                                 asynchronous(stream));
}
