// SPDX-License-Identifier: BSD-3-Clause
// Copies of rows at equal distances: cuMemcpy2D, cuMemcpy3D and their kin.
#include "array.hpp"
#include "copy.hpp"

namespace simcuda {

namespace {

struct Side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    std::size_t pitch;
    std::size_t height;  // rows from one slice to the next
    std::size_t x;
    std::size_t y;
    std::size_t z;

    CUdeviceptr base() const { return type == CU_MEMORYTYPE_HOST ? address_of(host) : device; }
    CUdeviceptr row(std::size_t slice, std::size_t index) const {
        return base() + ((z + slice) * height + y + index) * pitch + x;
    }
    bool may_be_pageable() const { return type != CU_MEMORYTYPE_DEVICE; }
};

struct Rows {
    Side to;
    Side from;
    std::size_t width;
    std::size_t height;
    std::size_t depth;
};

Rows rows_of(const CUDA_MEMCPY2D &call) {
    return {{call.dstMemoryType, call.dstHost, call.dstDevice, call.dstArray, call.dstPitch, 0,
             call.dstXInBytes, call.dstY, 0},
            {call.srcMemoryType, call.srcHost, call.srcDevice, call.srcArray, call.srcPitch, 0,
             call.srcXInBytes, call.srcY, 0},
            call.WidthInBytes,
            call.Height,
            1};
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER.
template <typename Slices>
Rows rows_of(const Slices &call) {
    return {{call.dstMemoryType, call.dstHost, call.dstDevice, call.dstArray, call.dstPitch,
             call.dstHeight, call.dstXInBytes, call.dstY, call.dstZ},
            {call.srcMemoryType, call.srcHost, call.srcDevice, call.srcArray, call.srcPitch,
             call.srcHeight, call.srcXInBytes, call.srcY, call.srcZ},
            call.WidthInBytes,
            call.Height,
            call.Depth};
}

// Makes it device memory, if all that is copied lies in the array.
CUresult resolve_array(const Rows &rows, Side *side) {
    const auto array = find_array(side->array);
    if (array == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (side->x % array->element_bytes != 0 || rows.width % array->element_bytes != 0 ||
        side->x + rows.width > array->row_bytes || side->y + rows.height > array->height ||
        side->z + rows.depth > array->depth) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->type = CU_MEMORYTYPE_DEVICE;
    side->device = array->address();
    side->pitch = array->row_bytes;
    side->height = array->height;
    return CUDA_SUCCESS;
}

// Fills in what the call leaves out; the error of the call if it is malformed.
CUresult resolve(const Rows &rows, Side *side) {
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        return resolve_array(rows, side);
    }
    if (side->pitch == 0) {
        side->pitch = rows.width;
    }
    const bool known = side->type == CU_MEMORYTYPE_HOST || side->type == CU_MEMORYTYPE_DEVICE ||
                       side->type == CU_MEMORYTYPE_UNIFIED;
    return known && side->pitch >= side->x + rows.width ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult make_transfers(const Rows &rows, const Device &device, std::vector<Transfer> *transfers) {
    for (std::size_t i = 0; i < rows.depth * rows.height; ++i) {
        const std::size_t slice = i / rows.height;
        const std::size_t row = i % rows.height;
        Transfer transfer;
        const CUresult result =
            Transfer::make({rows.to.row(slice, row), rows.from.row(slice, row), rows.width,
                            rows.to.may_be_pageable(), rows.from.may_be_pageable()},
                           device, &transfer);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        transfers->push_back(std::move(transfer));
    }
    return CUDA_SUCCESS;
}

CUresult copy_rows(Lock &lock, const std::shared_ptr<Stream> &stream, Rows rows,
                   bool asynchronous) {
    if (rows.width == 0 || rows.height == 0 || rows.depth == 0) {
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    for (Side *side : {&rows.to, &rows.from}) {
        result = result != CUDA_SUCCESS ? result : resolve(rows, side);
    }
    std::vector<Transfer> transfers;
    if (result == CUDA_SUCCESS) {
        result = make_transfers(rows, *stream->context.device, &transfers);
    }
    return result != CUDA_SUCCESS ? result : copy(lock, stream, std::move(transfers), asynchronous);
}

template <typename Parameters>
CUresult check_contexts(const Parameters & /*copy*/) {
    return CUDA_SUCCESS;
}

CUresult check_contexts(const CUDA_MEMCPY3D_PEER &copy) {
    // Arrays know theirs.
    const CUcontext to =
        copy.dstMemoryType == CU_MEMORYTYPE_ARRAY ? copy.srcContext : copy.dstContext;
    const CUcontext from = copy.srcMemoryType == CU_MEMORYTYPE_ARRAY ? to : copy.srcContext;
    const bool arrays =
        copy.dstMemoryType == CU_MEMORYTYPE_ARRAY && copy.srcMemoryType == CU_MEMORYTYPE_ARRAY;
    return arrays || contexts_alive(to, from) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

template <typename Parameters>
CUresult copy_by_call(Call &call, const Parameters *what, const Manner &manner) {
    return in_stream_of_call(call.given(what), manner, [&](Lock &lock, const auto &stream) {
        const CUresult result = what == nullptr ? CUDA_ERROR_INVALID_VALUE : check_contexts(*what);
        return result != CUDA_SUCCESS
                   ? result
                   : copy_rows(lock, stream, rows_of(*what), manner.asynchronous);
    });
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemcpy2D(const CUDA_MEMCPY2D *what) {
    static Call call{"cuMemcpy2D", Call::Kind::unsafe};
    return copy_by_call(call, what, kSynchronous);
}

extern "C" CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *what) {
    static Call call{"cuMemcpy2DUnaligned", Call::Kind::unsafe};
    return copy_by_call(call, what, kSynchronous);
}

extern "C" CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *what, CUstream stream) {
    static Call call{"cuMemcpy2DAsync"};
    return copy_by_call(call, what, asynchronous(stream));
}

extern "C" CUresult cuMemcpy3D(const CUDA_MEMCPY3D *what) {
    static Call call{"cuMemcpy3D", Call::Kind::unsafe};
    return copy_by_call(call, what, kSynchronous);
}

extern "C" CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *what, CUstream stream) {
    static Call call{"cuMemcpy3DAsync"};
    return copy_by_call(call, what, asynchronous(stream));
}

extern "C" CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *what) {
    static Call call{"cuMemcpy3DPeer", Call::Kind::unsafe};
    return copy_by_call(call, what, kSynchronous);
}

extern "C" CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *what, CUstream stream) {
    static Call call{"cuMemcpy3DPeerAsync"};
    return copy_by_call(call, what, asynchronous(stream));
}
