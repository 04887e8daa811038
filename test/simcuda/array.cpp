// SPDX-License-Identifier: BSD-3-Clause
// Creation and end of arrays.
#include "array.hpp"

#include "call.hpp"
#include "engine.hpp"

#include <algorithm>
#include <map>

namespace simcuda {

namespace {

using Arrays = std::map<CUarray, std::shared_ptr<const Array>>;

Arrays &arrays() {
    static auto &all = *new Arrays;
    return all;
}

// 0 for a format that the simulation does not know.
std::size_t channel_bytes(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return 4;
        default:
            return 0;
    }
}

CUresult create(Context &context, CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR &description) {
    const unsigned channels = description.NumChannels;
    const std::size_t element_bytes = channel_bytes(description.Format) * channels;
    if (handle == nullptr || description.Width == 0 || element_bytes == 0 ||
        (channels != 1 && channels != 2 && channels != 4) ||
        (description.Height == 0 && description.Depth != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (description.Flags != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;  // layers, faces of cubes, surfaces
    }
    auto array = std::make_shared<Array>();
    array->element_bytes = element_bytes;
    array->row_bytes = description.Width * element_bytes;
    array->height = std::max<std::size_t>(description.Height, 1);
    array->depth = std::max<std::size_t>(description.Depth, 1);
    array->memory = allocate_on_device(Allocation::Kind::device, *context.device, &context,
                                       array->row_bytes * array->height * array->depth);
    if (array->memory == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocations::get().add(array->memory);
    *handle = reinterpret_cast<CUarray>(array.get());
    arrays()[*handle] = std::move(array);
    trace_result(*handle);
    return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<const Array> find_array(CUarray handle) {
    const auto found = arrays().find(handle);
    return found == arrays().end() ? nullptr : found->second;
}

void destroy_arrays(const Context &context) {
    for (auto entry = arrays().begin(); entry != arrays().end();) {
        const bool of_context = entry->second->memory->context == &context;
        entry = of_context ? arrays().erase(entry) : std::next(entry);
    }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *description) {
    static Call call{"cuArrayCreate", Call::Kind::unsafe};
    return call.given(description).with_context([&](Lock &, Context &context) -> CUresult {
        return description == nullptr ? CUDA_ERROR_INVALID_VALUE
                                      : create(context, handle,
                                               {description->Width, description->Height, 0,
                                                description->Format, description->NumChannels, 0});
    });
}

extern "C" CUresult cuArray3DCreate_v2(CUarray *handle,
                                       const CUDA_ARRAY3D_DESCRIPTOR *description) {
    static Call call{"cuArray3DCreate", Call::Kind::unsafe};
    return call.given(description).with_context([&](Lock &, Context &context) -> CUresult {
        return description == nullptr ? CUDA_ERROR_INVALID_VALUE
                                      : create(context, handle, *description);
    });
}

extern "C" CUresult cuArrayDestroy(CUarray handle) {
    static Call call{"cuArrayDestroy", Call::Kind::unsafe};
    return call.given(handle).with_context([&](Lock &lock, Context &) -> CUresult {
        const auto array = find_array(handle);
        if (array == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        Engine::get().wait_to_free(lock, *array->memory->context);
        if (arrays().erase(handle) == 0) {
            return CUDA_ERROR_INVALID_HANDLE;  // by another thread meanwhile
        }
        Allocations::get().release(array->memory);
        return CUDA_SUCCESS;
    });
}
