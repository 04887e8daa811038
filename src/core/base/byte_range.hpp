// SPDX-License-Identifier: BSD-3-Clause
// A range of memory, and what a copy touches.
#pragma once

#include <cstddef>

namespace gpushm {

/** `length` 0: none. */
struct ByteRange {
    const void *begin = nullptr;
    size_t length = 0;
    /** The last byte; `begin` if there is none. */
    const void *last() const {
        return length == 0 ? begin : static_cast<const char *>(begin) + length - 1;
    }
};

/** The sides of a copy; of a memset there is the destination alone. */
struct TouchedBytes {
    ByteRange destination;
    ByteRange source;
};

}  // namespace gpushm
