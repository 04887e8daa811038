// SPDX-License-Identifier: BSD-3-Clause
// cuMemcpy2DAsync and cuMemcpy3DAsync: rows at equal distances by one call.
#include "call.hpp"
#include "copy.hpp"
#include "entry_points.hpp"
#include "stream.hpp"

#include <algorithm>

namespace simcuda {

namespace {

struct Side {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    std::size_t pitch;
    std::size_t height; // rows from one slice to the next
    std::size_t x;
    std::size_t y;
    std::size_t z;

    bool well_formed(std::size_t width) const
    {
        return (type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
                type == CU_MEMORYTYPE_UNIFIED) &&
               (pitch == 0 || pitch >= x + width);
    }
    CUdeviceptr row(std::size_t slice, std::size_t index, std::size_t width) const
    {
        const CUdeviceptr base =
            type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
        return base + ((z + slice) * height + y + index) * (pitch == 0 ? width : pitch) + x;
    }
    bool may_be_pageable() const { return type != CU_MEMORYTYPE_DEVICE; }
};

CUDA_MEMCPY3D one_slice(const CUDA_MEMCPY2D& rows)
{
    CUDA_MEMCPY3D slice{};
    slice.srcMemoryType = rows.srcMemoryType;
    slice.srcHost = rows.srcHost;
    slice.srcDevice = rows.srcDevice;
    slice.srcPitch = rows.srcPitch;
    slice.srcXInBytes = rows.srcXInBytes;
    slice.srcY = rows.srcY;
    slice.dstMemoryType = rows.dstMemoryType;
    slice.dstHost = rows.dstHost;
    slice.dstDevice = rows.dstDevice;
    slice.dstPitch = rows.dstPitch;
    slice.dstXInBytes = rows.dstXInBytes;
    slice.dstY = rows.dstY;
    slice.WidthInBytes = rows.WidthInBytes;
    slice.Height = rows.Height;
    slice.Depth = 1;
    return slice;
}

CUresult make_transfers(const CUDA_MEMCPY3D& rows, const Device& device,
                        std::vector<Transfer>* transfers)
{
    const Side from{rows.srcMemoryType, rows.srcHost,     rows.srcDevice, rows.srcPitch,
                    rows.srcHeight,     rows.srcXInBytes, rows.srcY,      rows.srcZ};
    const Side to{rows.dstMemoryType, rows.dstHost,     rows.dstDevice, rows.dstPitch,
                  rows.dstHeight,     rows.dstXInBytes, rows.dstY,      rows.dstZ};
    if (!from.well_formed(rows.WidthInBytes) || !to.well_formed(rows.WidthInBytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < rows.Depth * rows.Height; ++i) {
        const std::size_t slice = i / rows.Height;
        const std::size_t row = i % rows.Height;
        Transfer transfer;
        const CUresult result = Transfer::make(
            {to.row(slice, row, rows.WidthInBytes), from.row(slice, row, rows.WidthInBytes),
             rows.WidthInBytes, to.may_be_pageable(), from.may_be_pageable()},
            device, &transfer);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (transfer.from.pageable() && !transfer.to.host()) {
            transfer.from.stage();
        }
        transfers->push_back(std::move(transfer));
    }
    return CUDA_SUCCESS;
}

CUresult copy_rows(Lock& lock, const CUDA_MEMCPY3D& rows, CUstream handle)
{
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream_of_call(handle, &stream);
    if (result != CUDA_SUCCESS || rows.WidthInBytes == 0 || rows.Height == 0 ||
        rows.Depth == 0) {
        return result;
    }
    std::vector<Transfer> transfers;
    result = make_transfers(rows, *stream->context.device, &transfers);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const bool waits = std::any_of(transfers.begin(), transfers.end(), [](const Transfer& row) {
        return row.to.pageable() || (row.to.host() && row.from.host());
    });
    const Position done = Engine::get().enqueue(lock, stream, several(std::move(transfers)));
    if (waits) {
        Engine::get().wait(lock, done);
    }
    return stream->context.sticky_error;
}

Call call_2d{"cuMemcpy2DAsync"};
Call call_3d{"cuMemcpy3DAsync"};

} // namespace

} // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* rows, CUstream stream)
{
    return call_2d.given(rows, stream).initialised([&](Lock& lock) -> CUresult {
        return rows == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_rows(lock, one_slice(*rows), stream);
    });
}

extern "C" CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* rows, CUstream stream)
{
    return call_3d.given(rows, stream).initialised([&](Lock& lock) -> CUresult {
        return rows == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_rows(lock, *rows, stream);
    });
}
