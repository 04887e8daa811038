// SPDX-License-Identifier: BSD-3-Clause
// Copies under way that share an event.
#pragma once

#include "core/copy/copy_operands.hpp"
#include "core/copy/copy_types.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/kernels/reduction_kernel.hpp"
#include "core/standby/standby_queue.hpp"

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace gpushm {

/** What a batch keeps of a job. */
struct BatchedCopy {
    void *destination;
    const void *source;
    size_t length;  // bytes of a row
    CopyRows rows;
    bool failed = false;
    unsigned long long source_id = 0;  // CopyJob::source_may_go: the buffer; 0: it stays
    OtherSide other_side = OtherSide::unknown;
    bool source_may_be_unmapped = false;
    // Of rows only: what the driver has to be told.
    bool destination_on_gpu = false;
    bool source_on_gpu = false;

    /** Of all rows. */
    size_t bytes() const { return length * rows.count; }
    /** Gives it to the driver by one call; what the driver says. */
    CUresult submit(CUstream stream) const;
};

BatchedCopy batched(const CopyJob &job, CopyOperands &operands);

/** Of one row, from page-locked host memory to a GPU: makes it rows, if that leaves it to a copy
 * engine (host_rows.hpp). */
void leave_to_copy_engine(BatchedCopy *copy);

/** Copies that share an event. */
struct CopyBatch {
    std::vector<BatchedCopy> copies;
    size_t bytes = 0;         // of all
    size_t joint_bytes = 0;   // CopyJob::joint_bytes of each
    CUevent event = nullptr;  // recorded behind them; null before they are submitted
    bool by_kernel = false;
    std::unique_ptr<RowCopyList> list;             // what the kernel reads
    std::optional<ReductionParameters> reduction;  // of a batch of one copy: instead of it
    // Of a batch of one copy that a StandbyKernel was given:
    StandbyTicket standby;
    CopyDirection direction = CopyDirection::to_gpu;
    const void *gpu_side = nullptr;      // an address of the memory of CopyJob::gpu_side
    unsigned long long gpu_side_id = 0;  // and the buffer that was there then
    bool done = false;
    bool is_refused = false;  // done, and the driver has taken nothing of it

    void clear();
    void fail() {
        for (BatchedCopy &copy : copies) {
            copy.failed = true;
        }
    }
    /** Its end is not known: the kernel may still read what it was given. */
    void lose() {
        fail();
        if (list) {
            list->leave();
        }
    }
    /** Marks as failed each copy whose source was freed meanwhile: another buffer may be there now.
     */
    void drop_gone();
    /** Whether the memory of gpu_side was freed meanwhile. */
    bool has_lost_memory() const;
    /** Whether a batch of one copy, of one row, copies within a GPU and a context. Asks anew, for
     * memory may have been freed since the copy was given. */
    bool is_within_gpu() const;
};

/** An empty batch: `last_done`, if it has no ticket left. */
std::shared_ptr<CopyBatch> new_batch(std::shared_ptr<CopyBatch> &last_done);

}  // namespace gpushm
