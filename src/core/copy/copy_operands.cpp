// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/copy_operands.hpp"

#include "core/copy/reachability.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/segment_table.hpp"

namespace gpushm {

CopySides copy_sides(const void *destination, const void *source, size_t length) {
    const MemoryInfo destination_info = query_memory(destination);
    if (gpu_copies(destination_info, destination, length)) {
        return {destination_info, std::nullopt, CopyDirection::to_gpu};
    }
    // Where no GPU copies the source is a message in a slot, mostly.
    if (SegmentTable::instance().contains(source)) {
        return {};
    }
    const MemoryInfo source_info = query_memory(source);
    if (gpu_copies(source_info, source, length)) {
        return {source_info, destination_info, CopyDirection::from_gpu};
    }
    return {};
}

CopyOperands::CopyOperands(const CopyJob &job) : destination(job.destination), source(job.source) {
    for (CopyOperand *operand : {&destination, &source}) {
        if (covers(job.gpu_side, operand->address(), 1)) {
            operand->set_info(job.gpu_side);
        } else if (job.other_info != nullptr) {
            operand->set_info(*job.other_info);
        }
    }
}

}  // namespace gpushm
