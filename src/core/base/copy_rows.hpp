// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace gpushm {

/** Equal pieces of memory at equal distances, which one call of the driver copies, or one command
 * of the standby kernel. */
struct CopyRows {
    size_t count = 1;
    size_t destination_pitch = 0;  // bytes from one row to the next, at least those of a row
    size_t source_pitch = 0;
};

}  // namespace gpushm
