// SPDX-License-Identifier: BSD-3-Clause
// Which bytes a copy of rows touches.
#pragma once

#include <cstddef>

namespace gpushm {

/** `length` 0: none. */
struct ByteRange {
    const void *begin;
    size_t length;

    /** The last byte; `begin` if there is none. */
    const void *last() const {
        return length == 0 ? begin : static_cast<const char *>(begin) + length - 1;
    }
};

/** CUDA_MEMCPY2D and 3D: without a pitch the rows follow each other. */
inline size_t pitch_of(size_t said, size_t width) {
    return said == 0 ? width : said;
}

/** From the first byte to the last of rows of `width` bytes, of which the first begins `first_row`
 * pitches and `x` bytes behind `base`. Null `base` or no `width`: no bytes. */
inline ByteRange range_of_rows(const void *base, size_t pitch, size_t first_row, size_t last_row,
                               size_t x, size_t width) {
    if (base == nullptr || width == 0) {
        return {nullptr, 0};
    }
    return {static_cast<const char *>(base) + first_row * pitch_of(pitch, width) + x,
            (last_row - first_row) * pitch_of(pitch, width) + width};
}

}  // namespace gpushm
