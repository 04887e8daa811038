// SPDX-License-Identifier: BSD-3-Clause
// Who copies between two buffers.
#pragma once

#include "core/copy/copy_engine.hpp"
#include "core/memory/memory_info.hpp"

#include <cstddef>
#include <optional>

namespace gpushm {

/** Which side's GPU copies; none: the CPU does. */
struct CopySides {
    std::optional<MemoryInfo> gpu_side;
    CopyDirection direction = CopyDirection::to_gpu;
};

/** By what is at the beginning of the buffers. */
CopySides copy_sides(const void *destination, const void *source, size_t length);

}  // namespace gpushm
