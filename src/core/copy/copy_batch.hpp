// SPDX-License-Identifier: BSD-3-Clause
// What the files of CopyEngine share: copies under way, and calls of the driver for them.
#pragma once

#include "core/copy/copy_engine.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/standby/standby_kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gpushm {

struct BatchedCopy {
    void *destination;
    const void *source;
    size_t length;  // bytes of a row
    CopyRows rows;
    bool failed = false;
    unsigned long long source_id =
        0;  // of the buffer that is copied, if that may be freed meanwhile
    OtherSide other_side = OtherSide::unknown;
};

inline BatchedCopy batched(const CopyJob &job) {
    return {job.destination, job.source, job.length,
            job.rows,        false,      job.source_may_go ? job.gpu_side.buffer_id : 0,
            job.other_side};
}

/** Copies that share an event. */
struct CopyBatch {
    std::vector<BatchedCopy> copies;
    size_t bytes = 0;         // of all
    size_t joint_bytes = 0;   // CopyJob::joint_bytes of each
    CUevent event = nullptr;  // recorded behind them; null before they are submitted
    bool by_kernel = false;
    std::unique_ptr<RowCopyList> list;  // what the kernel reads
    // If it was given to a StandbyKernel:
    StandbyTicket standby;
    CopyDirection direction = CopyDirection::to_gpu;
    const void *gpu_side = nullptr;      // that of CopyJob::gpu_side,
    unsigned long long gpu_side_id = 0;  // and its buffer then
    bool done = false;

    void clear() {
        copies.clear();
        bytes = 0;
        joint_bytes = 0;
        event = nullptr;
        by_kernel = false;
        list.reset();
        done = false;
    }
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
};

/** Until all that was given to a stream has ended, as it turns out to be. */
CUresult wait_for_stream(CUcontext handle, unsigned long long id, CUstream stream);

/** One line for the user. */
void log_copy_failure(const char *what, size_t length, CUresult result);

/** The last one again if nobody has a ticket of it any more. */
inline std::shared_ptr<CopyBatch> new_batch(std::shared_ptr<CopyBatch> &last_done) {
    if (last_done.use_count() != 1) {
        return std::make_shared<CopyBatch>();
    }
    last_done->clear();
    return std::move(last_done);
}

/** What may be a passing shortage is tried again: a message that fails ends most programs. */
template <typename Function>
bool tried_twice(Function function) {
    return function() || function();
}

/** Calls `function`, again in the context `handle` when it fails in another one: drivers differ in
 * whether functions of streams and events need a context, and memory of pools is copied in its
 * own only (driver 580). `id`: CudaDriver::context_id(), for it may have ended. */
template <typename Function>
CUresult in_context(CUcontext handle, unsigned long long id, Function function) {
    const CUresult result = function();
    CUcontext current = nullptr;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ||
        (CudaDriver::get()->ctx_get_current(&current) == CUDA_SUCCESS && current == handle)) {
        return result;
    }
    CurrentContext entered(CudaDriver::get(), handle, id);
    return entered.result() == CUDA_SUCCESS ? function() : entered.result();
}

}  // namespace gpushm
