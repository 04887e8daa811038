// SPDX-License-Identifier: BSD-3-Clause
// cuMemcpy2DAsync: rows at equal distances by one call.
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
    std::size_t x;
    std::size_t y;

    bool well_formed(std::size_t width) const
    {
        return (type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
                type == CU_MEMORYTYPE_UNIFIED) &&
               (pitch == 0 || pitch >= x + width);
    }
    CUdeviceptr row(std::size_t index, std::size_t width) const
    {
        const CUdeviceptr base =
            type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
        return base + (y + index) * (pitch == 0 ? width : pitch) + x;
    }
    bool may_be_pageable() const { return type != CU_MEMORYTYPE_DEVICE; }
};

CUresult make_transfers(const CUDA_MEMCPY2D& rows, const Device& device,
                        std::vector<Transfer>* transfers)
{
    const Side from{rows.srcMemoryType, rows.srcHost,      rows.srcDevice,
                    rows.srcPitch,      rows.srcXInBytes, rows.srcY};
    const Side to{rows.dstMemoryType, rows.dstHost,      rows.dstDevice,
                  rows.dstPitch,      rows.dstXInBytes, rows.dstY};
    if (!from.well_formed(rows.WidthInBytes) || !to.well_formed(rows.WidthInBytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < rows.Height; ++i) {
        Transfer transfer;
        const CUresult result = Transfer::make(
            {to.row(i, rows.WidthInBytes), from.row(i, rows.WidthInBytes), rows.WidthInBytes,
             to.may_be_pageable(), from.may_be_pageable()},
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

CUresult copy_rows(Lock& lock, const CUDA_MEMCPY2D& rows, CUstream handle)
{
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream_of_call(handle, &stream);
    if (result != CUDA_SUCCESS || rows.WidthInBytes == 0 || rows.Height == 0) {
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

Call call{"cuMemcpy2DAsync"};

} // namespace

} // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* rows, CUstream stream)
{
    return call.given(rows, stream).initialised([&](Lock& lock) -> CUresult {
        return rows == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_rows(lock, *rows, stream);
    });
}
