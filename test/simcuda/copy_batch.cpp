// SPDX-License-Identifier: BSD-3-Clause
// cuMemcpyBatchAsync: many copies by one call. They run in any order, as the manual has it.
#include "call.hpp"
#include "copy.hpp"
#include "per_thread_function.hpp"

#include <algorithm>

namespace simcuda {

namespace {

struct Batch {
    CUdeviceptr *to;
    CUdeviceptr *from;
    std::size_t *bytes;
    std::size_t count;
    CUmemcpyAttributes *attributes;
    std::size_t *attribute_begins;  // the first copy that each of the attributes is for
    std::size_t attribute_count;
};

bool well_formed(const Batch &batch) {
    if (batch.to == nullptr || batch.from == nullptr || batch.bytes == nullptr ||
        batch.attributes == nullptr || batch.attribute_begins == nullptr || batch.count == 0 ||
        batch.attribute_count == 0 || batch.attribute_count > batch.count ||
        batch.attribute_begins[0] != 0) {
        return false;
    }
    for (std::size_t i = 0; i < batch.attribute_count; ++i) {
        const auto order = batch.attributes[i].srcAccessOrder;
        const bool rises = i == 0 || batch.attribute_begins[i] > batch.attribute_begins[i - 1];
        if (!rises || batch.attribute_begins[i] >= batch.count ||
            order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) {
            return false;
        }
    }
    return true;
}

// Pageable sources are read when the stream gets there, unless the attribute says otherwise: who
// relies on their being staged sends wrong data.
CUresult make_transfers(const Batch &batch, const Device &device, std::vector<Transfer> *transfers,
                        std::size_t *failed_copy) {
    std::size_t attribute = 0;
    for (std::size_t i = 0; i < batch.count; ++i) {
        if (attribute + 1 < batch.attribute_count && batch.attribute_begins[attribute + 1] == i) {
            ++attribute;
        }
        Transfer transfer;
        const CUresult result =
            batch.bytes[i] == 0
                ? CUDA_ERROR_INVALID_VALUE
                : Transfer::make({batch.to[i], batch.from[i], batch.bytes[i]}, device, &transfer);
        if (result != CUDA_SUCCESS) {
            *failed_copy = i;
            return result;
        }
        if (transfer.from.pageable() && batch.attributes[attribute].srcAccessOrder ==
                                            CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
            transfer.from.stage();
        }
        transfers->push_back(std::move(transfer));
    }
    return CUDA_SUCCESS;
}

// `failed_copy`: the copy that the error is about; not changed if it is about none.
CUresult copy_batch(Lock &lock, const Batch &batch, CUstream handle, std::size_t *failed_copy) {
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream_of_call(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (stream->kind == Stream::Kind::legacy || !well_formed(batch)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<Transfer> transfers;
    result = make_transfers(batch, *stream->context.device, &transfers, failed_copy);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool to_pageable =
        std::any_of(transfers.begin(), transfers.end(),
                    [](const Transfer &transfer) { return transfer.to.pageable(); });
    const Position done = Engine::get().enqueue(lock, stream, several(std::move(transfers)));
    if (to_pageable) {
        Engine::get().wait(lock, done);
    }
    return stream->context.sticky_error;
}

Call call{"cuMemcpyBatchAsync"};

}  // namespace

}  // namespace simcuda

using namespace simcuda;

#undef cuMemcpyBatchAsync
// The form of CUDA 12.8.
extern "C" CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, std::size_t *bytes,
                                       std::size_t count, CUmemcpyAttributes *attributes,
                                       std::size_t *attribute_begins, std::size_t attribute_count,
                                       std::size_t *failed_copy, CUstream stream) {
    return call.given(count, attribute_count, stream).initialised([&](Lock &lock) -> CUresult {
        if (failed_copy == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *failed_copy = SIZE_MAX;
        const Batch batch{to, from, bytes, count, attributes, attribute_begins, attribute_count};
        return copy_batch(lock, batch, stream, failed_copy);
    });
}

// The form of CUDA 13.0.
extern "C" CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, std::size_t *bytes,
                                          std::size_t count, CUmemcpyAttributes *attributes,
                                          std::size_t *attribute_begins,
                                          std::size_t attribute_count, CUstream stream) {
    return call.given(count, attribute_count, stream).initialised([&](Lock &lock) {
        std::size_t failed_copy = SIZE_MAX;
        const Batch batch{to, from, bytes, count, attributes, attribute_begins, attribute_count};
        return copy_batch(lock, batch, stream, &failed_copy);
    });
}

SIMCUDA_PER_THREAD_FUNCTION(9, cuMemcpyBatchAsync, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(8, cuMemcpyBatchAsync_v2, _ptsz)
