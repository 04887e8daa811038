// SPDX-License-Identifier: BSD-3-Clause
// Streams that write a word to memory, or wait for one.
#include "call.hpp"
#include "copy.hpp"
#include "per_thread_function.hpp"

namespace simcuda {

namespace {

// The word at an address, checked; the error of the call otherwise.
template <typename Value>
CUresult make_word(CUdeviceptr address, const Access &access, Span *word) {
    const CUresult result = Span::make(address, sizeof(Value), access, word);
    return address % sizeof(Value) != 0 ? CUDA_ERROR_INVALID_VALUE : result;
}

template <typename Value>
CUresult write_value(Call &call, CUstream handle, CUdeviceptr address, Value value,
                     unsigned flags) {
    return call.given(handle, address, value, flags)
        .with_context([&](Lock &lock, Context &context) -> CUresult {
            std::shared_ptr<Stream> stream;
            CUresult result = find_usable_stream(handle, context, &stream);
            if (result != CUDA_SUCCESS) {
                return result;
            }
            Span word;
            result = make_word<Value>(address, {*stream->context.device, true}, &word);
            if (result != CUDA_SUCCESS ||
                (flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) != 0) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            Operation operation;
            operation.passes_frees = true;
            operation.run = [word, value](Lock &) -> CUresult {
                auto *target = reinterpret_cast<Value *>(word.access());
                if (target == nullptr) {
                    return CUDA_ERROR_ILLEGAL_ADDRESS;
                }
                __atomic_store_n(target, value, __ATOMIC_RELEASE);
                return CUDA_SUCCESS;
            };
            Engine::get().enqueue(lock, stream, std::move(operation));
            return CUDA_SUCCESS;
        });
}

template <typename Value>
bool satisfied(Value found, Value value, unsigned condition) {
    switch (condition) {
        case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic, as the manual has it
            return static_cast<std::make_signed_t<Value>>(found - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
            return found == value;
        case CU_STREAM_WAIT_VALUE_AND:
            return (found & value) != 0;
        default:
            return static_cast<Value>(~(found | value)) != 0;
    }
}

template <typename Value>
CUresult wait_value(Call &call, CUstream handle, CUdeviceptr address, Value value, unsigned flags) {
    return call.given(handle, address, value, flags)
        .with_context([&](Lock &lock, Context &context) -> CUresult {
            std::shared_ptr<Stream> stream;
            CUresult result = find_usable_stream(handle, context, &stream);
            if (result != CUDA_SUCCESS) {
                return result;
            }
            const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
            Span word;
            result = make_word<Value>(address, {*stream->context.device, false}, &word);
            if (result != CUDA_SUCCESS || condition > CU_STREAM_WAIT_VALUE_NOR) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            Operation operation;
            operation.passes_frees = true;
            operation.may_run = [=] {
                const auto *source = reinterpret_cast<const Value *>(word.engine_address());
                return source == nullptr ||
                       satisfied(__atomic_load_n(source, __ATOMIC_ACQUIRE), value, condition);
            };
            operation.run = [word](Lock &) {
                return word.engine_address() == nullptr ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
            };
            Engine::get().enqueue(lock, stream, std::move(operation));
            return CUDA_SUCCESS;
        });
}

Call write_32{"cuStreamWriteValue32"};
Call write_64{"cuStreamWriteValue64"};
Call wait_32{"cuStreamWaitValue32"};
Call wait_64{"cuStreamWaitValue64"};

}  // namespace

}  // namespace simcuda

using namespace simcuda;

// The first versions and the second ones do the same.
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64

extern "C" CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                         unsigned int flags) {
    return write_value(write_32, stream, address, value, flags);
}

extern "C" CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                            unsigned int flags) {
    return write_value(write_32, stream, address, value, flags);
}

extern "C" CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                         unsigned int flags) {
    return write_value(write_64, stream, address, value, flags);
}

extern "C" CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                            unsigned int flags) {
    return write_value(write_64, stream, address, value, flags);
}

extern "C" CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                        unsigned int flags) {
    return wait_value(wait_32, stream, address, value, flags);
}

extern "C" CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                           unsigned int flags) {
    return wait_value(wait_32, stream, address, value, flags);
}

extern "C" CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                        unsigned int flags) {
    return wait_value(wait_64, stream, address, value, flags);
}

extern "C" CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                           unsigned int flags) {
    return wait_value(wait_64, stream, address, value, flags);
}

SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWriteValue32, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWriteValue32_v2, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWriteValue64, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWriteValue64_v2, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWaitValue32, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWaitValue32_v2, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWaitValue64, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(4, cuStreamWaitValue64_v2, _ptsz)
