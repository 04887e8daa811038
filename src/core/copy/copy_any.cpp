// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/copy_any.hpp"

#include "core/copy/copy_operands.hpp"
#include "core/copy/engine_pool.hpp"
#include "core/copy/row_views.hpp"
#include "core/copy/stream_calls.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/shm/message_in_hand.hpp"

#include <cstring>
#include <optional>

namespace gpushm {

CopyJob job_between(void *destination, const void *source, size_t length, const CopySides &sides) {
    CopyJob job = {destination, source, length, *sides.gpu_side, sides.direction};
    job.other_info = sides.other_info();
    job.mailbox = MessageInHand::mailbox();
    return job;
}

Status start_any(CopyEngine &engine, void *destination, const void *source, size_t length,
                 CopyTicket *ticket) {
    *ticket = CopyTicket();
    if (length == 0) {
        return Status::ok;
    }
    const CopySides sides = copy_sides(destination, source, length);
    if (sides.gpu_side) {
        return engine.start(job_between(destination, source, length, sides), ticket);
    }
    memcpy(destination, source, length);
    return Status::ok;
}

namespace {

/** With an engine of the pool. */
Status copy_job(const CopyJob &job) {
    BorrowedEngine engine;
    const Status status = engine->copy(job);
    if (status != Status::ok) {
        engine.discard();
    }
    return status;
}

/** A short message for a block that stands for rows (RowViews) goes into the rows; CopyEngine does
 * the same for those that are read. */
Status copy_directly(void *destination, const void *source, size_t length, const CopySides &sides) {
    const std::optional<StridedRows> rows =
        length <= PinnedBufferPool::kSmallBlockBytes
            ? RowViews::instance().destination(destination, length)
            : std::nullopt;
    if (!rows) {
        return copy_job(job_between(destination, source, length, sides));
    }
    auto *const first_row = reinterpret_cast<void *>(rows->address);
    CopySides into_rows = sides;
    into_rows.gpu_side = query_memory(first_row);  // it was the block
    CopyJob job = job_between(first_row, source, rows->length, into_rows);
    job.rows = {rows->count, rows->pitch, rows->length};
    const Status status = copy_job(job);
    if (status == Status::ok) {
        RowViews::instance().set_filled(destination);
    }
    return status;
}

/** Through page-locked memory, which the standby kernel reaches, unlike pageable host memory:
 * doc/decisions/copy-pageable-memory.md. */
Status copy_through(void *block, void *destination, const void *source, size_t length,
                    const CopySides &sides) {
    if (sides.direction == CopyDirection::to_gpu) {
        memcpy(block, source, length);
        return copy_directly(destination, block, length, sides);
    }
    const Status status = copy_directly(block, source, length, sides);
    if (status == Status::ok) {
        memcpy(destination, block, length);
    }
    return status;
}

/** Whether the side that is not the GPU's is host memory that the driver does not know and so has
 * to stage. Notes in `sides` what it is. */
bool is_pageable(const void *other, CopySides *sides) {
    if (SegmentTable::instance().contains(other)) {
        return false;
    }
    if (!sides->other_side) {
        sides->other_side = query_memory(other);
    }
    return sides->other_side->base == nullptr;
}

Status copy_once(void *destination, const void *source, size_t length, CopySides sides) {
    const void *other = sides.direction == CopyDirection::to_gpu ? source : destination;
    if (length <= PinnedBufferPool::kSmallBlockBytes && is_pageable(other, &sides)) {
        const HostBlock block(length);
        if (block.is_of_pool()) {
            return copy_through(block.address(), destination, source, length, sides);
        }
    }
    return copy_directly(destination, source, length, sides);
}

/** The driver's synchronous copy, which needs no stream or event of ours. It waits for the
 * application's default stream, so it is the last resort. */
Status copy_synchronously(void *destination, const void *source, size_t length,
                          const MemoryInfo &gpu_side) {
    const CudaDriver *driver = CudaDriver::get();
    if (!RowViews::instance().pack(source, length)) {
        return Status::gpu_error;
    }
    CopyEngine engine;
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, engine.context_of(gpu_side));
    CUresult result =
        driver->memcpy_sync(device_pointer(destination), device_pointer(source), length);
    if (result == CUDA_SUCCESS) {
        // Between some kinds it returns before the bytes are there ("API synchronization
        // behavior").
        result = driver->stream_synchronize(nullptr);
    }
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuMemcpy", length, result);
    }
    return result == CUDA_SUCCESS ? Status::ok : Status::gpu_error;
}

}  // namespace

/** A failure is tried again, and at last by other means: UCP does not expect a copy between memory
 * kinds to fail. UCP 1.13 goes on with what was in the destination (src/ucp/dt/dt.c), later
 * releases end the process. */
Status copy_any(void *destination, const void *source, size_t length) {
    constexpr int kAttempts = 3;
    Status status = Status::ok;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
        // Most calls are between host buffers and need no engine.
        const CopySides sides = CudaDriver::get() != nullptr && length != 0
                                    ? copy_sides(destination, source, length)
                                    : CopySides();
        if (!sides.gpu_side) {
            if (length != 0) {
                memcpy(destination, source, length);
            }
            return Status::ok;
        }
        status = attempt < kAttempts
                     ? copy_once(destination, source, length, sides)
                     : copy_synchronously(destination, source, length, *sides.gpu_side);
        if (status == Status::ok) {
            break;
        }
    }
    return status;
}

}  // namespace gpushm
