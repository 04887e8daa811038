// SPDX-License-Identifier: BSD-3-Clause
// Who copies between two buffers.
#include "core/copy/copy_sides.hpp"

#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/pinning/segment_table.hpp"

namespace gpushm {

CopySides copy_sides(const void *destination, const void *source, size_t length) {
    const MemoryInfo destination_info = query_memory(destination);
    if (gpu_copies(destination_info, destination, length)) {
        return {destination_info, CopyDirection::to_gpu};
    }
    if (SegmentTable::instance().contains(source)) {
        return {};  // the usual case where no GPU copies: a message out of a slot
    }
    const MemoryInfo source_info = query_memory(source);
    if (gpu_copies(source_info, source, length)) {
        return {source_info, CopyDirection::from_gpu};
    }
    return {};
}

}  // namespace gpushm
