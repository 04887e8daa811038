// SPDX-License-Identifier: BSD-3-Clause
// Small copies from page-locked host memory that a copy engine makes.
#pragma once

#include <cstddef>

namespace gpushm {

/** Bytes. The driver copies so few from host memory by the engine that runs kernels, which serves
 * one process at a time, if they are one row; several rows it gives to a copy engine
 * (doc/decisions/standby-time-slices.md). */
constexpr size_t kMostByKernelEngine = 24u << 10;

/** Into how many rows such a copy is divided that a copy engine is to make; 1: it cannot be, or
 * need not. */
constexpr size_t rows_for_copy_engine(size_t length) {
    constexpr size_t kMostRows = 64;
    for (size_t rows = 2; length <= kMostByKernelEngine && rows <= kMostRows; ++rows) {
        if (length % rows == 0) {
            return rows;
        }
    }
    return 1;
}
static_assert(rows_for_copy_engine(1) == 1 && rows_for_copy_engine(2) == 2, "rows have bytes");

}  // namespace gpushm
