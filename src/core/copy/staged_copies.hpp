// SPDX-License-Identifier: BSD-3-Clause
// Copies within a GPU through page-locked host memory, and exchanges of words with the GPU, which
// no kernel of the application holds up.
#pragma once

#include "core/copy/copy_batch.hpp"
#include "core/copy/event_pool.hpp"
#include "core/kernels/cancellable_copy_kernel.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"

#include <cuda.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

/** A stream of one context on which only copy engines work, between the GPU and a block of
 * page-locked host memory. One thread at a time, whose stream captures are relaxed. */
class StagedCopies {
public:
    /** `id` is CudaDriver::context_id(). */
    StagedCopies(CUcontext context, unsigned long long id, EventPool &events)
        : context_(context), id_(id), events_(events) {}
    StagedCopies(const StagedCopies &) = delete;
    StagedCopies &operator=(const StagedCopies &) = delete;

    /** False: the driver refuses the stream. The context must be current. */
    bool make_stream(int priority);
    /** Gives back its events, and destroys the stream. The context must be current. */
    void destroy_stream();

    /** Polls until nothing there uses the block. False: the driver does not say so; then nobody
     * gets the block any more, and the answer of an exchange is lost. */
    bool await();

    // ---- copies

    /** Adds a batch of one copy, of one row. */
    void add(const std::shared_ptr<CopyBatch> &batch) { staged_.push_back(batch); }
    /** How many have not ended. */
    size_t count() const { return staged_.size(); }
    /** Starts what is possible, and adds to `ended` the batches that have ended. Failed ones are
     * marked, and logged. */
    void advance(std::vector<std::shared_ptr<CopyBatch>> *ended);
    /** Takes out all batches and passes each to `end`. Allocates nothing. */
    template <typename End>
    void abandon(End end) {
        for (const std::shared_ptr<CopyBatch> &batch : staged_) {
            end(*batch);
        }
        staged_.clear();
    }

    // ---- exchanges, one at a time

    /** Writes slot.cancelled into the Cancellation of `slot`, if `writes`, and reads the words
     * behind that. Beside a kernel that fills the GPU this takes up to 4 ms
     * (doc/decisions/copy-cancelling.md). */
    void submit_exchange(const CancellationSlot &slot, bool writes);
    /** CUDA_SUCCESS: answer() is there. CUDA_ERROR_NOT_READY: not yet. Else the driver refused the
     * exchange, or lost it. */
    CUresult query_exchange() const;
    Cancellation answer();
    /** The driver took the exchange, and the answer is not lost. */
    bool exchange_is_submitted() const { return exchange_submitted_; }

    /** Gives back the block. Nothing is under way. */
    void release_block() { block_.reset(); }

private:
    unsigned char *block();
    CUresult stage(const BatchedCopy &copy);
    CUresult start_piece(const BatchedCopy &copy);

    const CUcontext context_;
    const unsigned long long id_;
    EventPool &events_;
    CUstream stream_ = nullptr;
    std::optional<HostBlock> block_;  // while there is something to exchange or to copy

    std::deque<std::shared_ptr<CopyBatch>> staged_;  // the first one is under way
    size_t staged_bytes_ = 0;                        // of it
    size_t piece_bytes_ = 0;                         // of it that are on their way; 0: none
    CUevent piece_event_ = nullptr;

    bool exchange_submitted_ = false;
    CUevent exchange_event_ = nullptr;
};

}  // namespace gpushm
