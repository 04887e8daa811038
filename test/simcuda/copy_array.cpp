// SPDX-License-Identifier: BSD-3-Clause
// Copies from and to one-dimensional arrays.
#include "array.hpp"
#include "copy.hpp"

namespace simcuda {

namespace {

// Where bytes come from or go to.
struct Place {
    CUarray array;            // null: at the address
    std::uintptr_t position;  // in the array, or the address
    bool may_be_pageable = false;
};

Place in_array(CUarray array, std::size_t position) {
    return {array, position};
}

Place on_host(const void *address) {
    return {nullptr, address_of(address), true};
}

Place on_device(CUdeviceptr address) {
    return {nullptr, address};
}

// CUDA_SUCCESS if the bytes lie in the array, if it is one.
CUresult find_address(const Place &place, std::size_t bytes, CUdeviceptr *address) {
    *address = place.position;
    if (place.array == nullptr) {
        return CUDA_SUCCESS;
    }
    const auto array = find_array(place.array);
    if (array == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *address += array->address();
    const bool whole_elements =
        place.position % array->element_bytes == 0 && bytes % array->element_bytes == 0;
    return whole_elements && array->memory->contains(*address, bytes) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_by_call(Call &call, const Place &to, const Place &from, std::size_t bytes,
                      const Manner &manner) {
    call.given(to.array, to.position, from.array, from.position, bytes);
    return in_stream_of_call(call, manner, [&](Lock &lock, const auto &stream) {
        Copy what{0, 0, bytes, to.may_be_pageable, from.may_be_pageable};
        CUresult result = find_address(to, bytes, &what.to);
        if (result == CUDA_SUCCESS) {
            result = find_address(from, bytes, &what.from);
        }
        return result != CUDA_SUCCESS ? result
                                      : copy_bytes(lock, stream, what, manner.asynchronous);
    });
}

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemcpyDtoA_v2(CUarray to, std::size_t position, CUdeviceptr from,
                                    std::size_t bytes) {
    static Call call{"cuMemcpyDtoA", Call::Kind::unsafe};
    return copy_by_call(call, in_array(to, position), on_device(from), bytes, kSynchronous);
}

extern "C" CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, std::size_t position,
                                    std::size_t bytes) {
    static Call call{"cuMemcpyAtoD", Call::Kind::unsafe};
    return copy_by_call(call, on_device(to), in_array(from, position), bytes, kSynchronous);
}

extern "C" CUresult cuMemcpyHtoA_v2(CUarray to, std::size_t position, const void *from,
                                    std::size_t bytes) {
    static Call call{"cuMemcpyHtoA", Call::Kind::unsafe};
    return copy_by_call(call, in_array(to, position), on_host(from), bytes, kSynchronous);
}

extern "C" CUresult cuMemcpyAtoH_v2(void *to, CUarray from, std::size_t position,
                                    std::size_t bytes) {
    static Call call{"cuMemcpyAtoH", Call::Kind::unsafe};
    return copy_by_call(call, on_host(to), in_array(from, position), bytes, kSynchronous);
}

extern "C" CUresult cuMemcpyAtoA_v2(CUarray to, std::size_t to_position, CUarray from,
                                    std::size_t from_position, std::size_t bytes) {
    static Call call{"cuMemcpyAtoA", Call::Kind::unsafe};
    return copy_by_call(call, in_array(to, to_position), in_array(from, from_position), bytes,
                        kSynchronous);
}

extern "C" CUresult cuMemcpyHtoAAsync_v2(CUarray to, std::size_t position, const void *from,
                                         std::size_t bytes, CUstream stream) {
    static Call call{"cuMemcpyHtoAAsync"};
    return copy_by_call(call, in_array(to, position), on_host(from), bytes, asynchronous(stream));
}

extern "C" CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, std::size_t position,
                                         std::size_t bytes, CUstream stream) {
    static Call call{"cuMemcpyAtoHAsync"};
    return copy_by_call(call, on_host(to), in_array(from, position), bytes, asynchronous(stream));
}
