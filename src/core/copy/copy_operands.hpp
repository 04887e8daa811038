// SPDX-License-Identifier: BSD-3-Clause
// What the two sides of a copy are, asked once for each copy.
#pragma once

#include "core/copy/copy_types.hpp"
#include "core/memory/memory_query.hpp"

#include <cstddef>
#include <optional>

namespace gpushm {

/** Which side's GPU copies between two buffers. */
struct CopySides {
    std::optional<MemoryInfo> gpu_side;    // none: the CPU copies
    std::optional<MemoryInfo> other_side;  // none: nobody has needed to know
    CopyDirection direction = CopyDirection::to_gpu;

    /** For CopyJob::other_info. */
    const MemoryInfo *other_info() const { return other_side ? &*other_side : nullptr; }
};

/** Decides by what lies at the beginning of the buffers. Thread safe. */
CopySides copy_sides(const void *destination, const void *source, size_t length);

/** One side of a copy. */
class CopyOperand {
public:
    explicit CopyOperand(const void *address) : address_(address) {}

    /** What query_memory() says of the address, called at most once. */
    const MemoryInfo &info() {
        if (!info_) {
            info_ = query_memory(address_);
        }
        return *info_;
    }
    /** What the caller knows already. */
    void set_info(const MemoryInfo &info) { info_ = info; }

    const void *address() const { return address_; }
    /** SegmentTable has page-locked the segment in which the address lies. */
    bool pinned_by_us = false;

private:
    const void *address_;
    std::optional<MemoryInfo> info_;
};

/** Both sides of a job, handed down through the engine. They know what the job says of them. */
struct CopyOperands {
    explicit CopyOperands(const CopyJob &job);

    CopyOperand destination;
    CopyOperand source;
};

/** Whether the source is page-locked host memory. `source` is its operand, of which pinned_by_us is
 * set. */
inline bool is_from_host(const CopyJob &job, const CopyOperand &source) {
    return source.pinned_by_us || job.from_host;
}

}  // namespace gpushm
