// SPDX-License-Identifier: BSD-3-Clause
// Which bytes a copy of rows touches.
#pragma once

#include "core/base/byte_range.hpp"
#include "core/cuda/cuda_driver.hpp"

namespace gpushm {

/** CUDA_MEMCPY2D and 3D: without a pitch the rows follow each other. */
inline size_t pitch_of(size_t said, size_t width) {
    return said == 0 ? width : said;
}

/** From the first byte to the last of rows of `width` bytes, of which the first begins `first_row`
 * pitches and `x` bytes behind `base`. Null `base` or no `width`: no bytes. */
inline ByteRange range_of_rows(const void *base, size_t pitch, size_t first_row, size_t last_row,
                               size_t x, size_t width) {
    if (base == nullptr || width == 0) {
        return {};
    }
    return {static_cast<const char *>(base) + first_row * pitch_of(pitch, width) + x,
            (last_row - first_row) * pitch_of(pitch, width) + width};
}

/** The kinds of memory that touched_bytes() does not leave out. Members of a description of rows
 * that do not belong to the kind of a side may hold anything. */
enum class Sides { that_may_be_host_memory, of_any_memory };

inline const void *base_of_rows(Sides sides, CUmemorytype type, const void *host,
                                CUdeviceptr address) {
    const bool by_address = type == CU_MEMORYTYPE_UNIFIED ||
                            (type == CU_MEMORYTYPE_DEVICE && sides == Sides::of_any_memory);
    return type == CU_MEMORYTYPE_HOST ? host
           : by_address               ? reinterpret_cast<const void *>(address)
                                      : nullptr;
}

inline TouchedBytes touched_bytes(const CUDA_MEMCPY2D &rows, Sides sides) {
    const size_t last = rows.Height - 1;
    const size_t width = rows.Height == 0 ? 0 : rows.WidthInBytes;
    return {range_of_rows(base_of_rows(sides, rows.dstMemoryType, rows.dstHost, rows.dstDevice),
                          rows.dstPitch, rows.dstY, rows.dstY + last, rows.dstXInBytes, width),
            range_of_rows(base_of_rows(sides, rows.srcMemoryType, rows.srcHost, rows.srcDevice),
                          rows.srcPitch, rows.srcY, rows.srcY + last, rows.srcXInBytes, width)};
}

/** Of CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER. */
template <typename Rows>
TouchedBytes touched_bytes(const Rows &rows, Sides sides) {
    const auto row = [](size_t z, size_t height, size_t y) { return z * height + y; };
    const size_t last_z = rows.Depth - 1;
    const size_t last_y = rows.Height - 1;
    const size_t width = rows.Height == 0 || rows.Depth == 0 ? 0 : rows.WidthInBytes;
    return {range_of_rows(base_of_rows(sides, rows.dstMemoryType, rows.dstHost, rows.dstDevice),
                          rows.dstPitch, row(rows.dstZ, rows.dstHeight, rows.dstY),
                          row(rows.dstZ + last_z, rows.dstHeight, rows.dstY + last_y),
                          rows.dstXInBytes, width),
            range_of_rows(base_of_rows(sides, rows.srcMemoryType, rows.srcHost, rows.srcDevice),
                          rows.srcPitch, row(rows.srcZ, rows.srcHeight, rows.srcY),
                          row(rows.srcZ + last_z, rows.srcHeight, rows.srcY + last_y),
                          rows.srcXInBytes, width)};
}

}  // namespace gpushm
