// SPDX-License-Identifier: BSD-3-Clause
// Copies within a GPU that do not wait for ever for a kernel of the application that fills it.
#pragma once

#include "core/copy/copy_batch.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/kernels/cancellable_copy_kernel.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace gpushm {

/** Of one context, by the kernel of cancellable_copy_kernel.cu in a stream of its own. Of copies
 * that do not begin for kPatience, because a kernel of the application fills the GPU until their
 * message has come, that kernel is told that nobody wants them any more; then they go through
 * page-locked host memory, by the copy engines, which no kernel keeps from working, and so do those
 * that follow until the kernel has come and gone.
 *
 * One thread at a time, whose stream captures are relaxed. */
class CancellableCopies {
public:
    /** Null where there is no kernel for it, or the driver refuses what it needs. `id`:
     * CudaDriver::context_id(). */
    static std::unique_ptr<CancellableCopies> make(CUcontext context, unsigned long long id,
                                                   std::shared_ptr<const KernelCode> kernels);

    CancellableCopies(const CancellableCopies &) = delete;
    CancellableCopies &operator=(const CancellableCopies &) = delete;
    /** What it was given has ended, or its end is not asked for any more. In a context that has
     * ended nothing is freed. */
    ~CancellableCopies();

    /** A batch of one copy, of one row, between memory that kernels of the context reach. False:
     * nothing was started. */
    bool start(const std::shared_ptr<CopyBatch> &batch);

    /** Nothing that was started is under way. */
    bool idle() const { return launched_ == 0 && waiting_.empty() && staged_.empty(); }

    /** Adds to `ended` the batches that have ended; failed() ones are marked, and logged. */
    void advance(std::vector<std::shared_ptr<CopyBatch>> *ended);

    /** Takes out all that has not ended, of a context of which no answer will come. */
    void abandon(const std::function<void(CopyBatch &)> &end);

private:
    /** Of a copy whose kernel has ended; in_doubt: it was cancelled, and had perhaps begun. */
    enum class Made { yes, no, in_doubt, unknown };

    /** What is in the stream of the kernel. Copies are cancelled together, and nothing is added
     * before those have gone, so what is in doubt comes before what is surely not made. */
    struct Launch {
        std::shared_ptr<CopyBatch> batch;  // null: it was cancelled, and is copied otherwise
        CUevent event = nullptr;           // behind it; null: the stream is asked
        uint32_t number = 0;
        uint32_t begun_before = 0;
        Made made = Made::yes;
    };

    /** What we are asking the GPU: whether the first copy has begun, to leave those that have not,
     * or whether the first one, which was in doubt, was made. */
    enum class Exchange { none, look, cancel, resolve };

    CancellableCopies(CUcontext context, unsigned long long id,
                      std::shared_ptr<const KernelCode> kernels)
        : context_(context), id_(id), kernels_(std::move(kernels)) {}
    bool make_streams();

    bool is_stuck() const { return !launches_.empty() && launches_.front().batch == nullptr; }
    /** No copy may be added to the stream: what it would say of itself could be taken for others.
     */
    bool is_closed() const {
        return is_stuck() || (!launches_.empty() && launches_.front().made != Made::yes);
    }
    bool has_room() const;
    bool launch(const std::shared_ptr<CopyBatch> &batch);
    CancellableCopy describe(const BatchedCopy &copy) const;
    CUevent take_event();
    void give_back(CUevent event);
    CUresult query(CUevent event, CUstream stream) const;
    unsigned char *block();
    bool await_staging_stream();
    void drop_passed();

    void pass_launches(std::vector<std::shared_ptr<CopyBatch>> *ended);
    void pass(const Launch &launch, CUresult result,
              std::vector<std::shared_ptr<CopyBatch>> *ended);
    void launch_waiting();

    void look_if_late();
    void begin_exchange(Exchange exchange);
    void submit_exchange();
    void advance_exchange();
    void end_exchange(Exchange exchange, const Cancellation &state);
    void leave_to_staging(const Cancellation &state);
    void give_up_exchange();

    void advance_staging(std::vector<std::shared_ptr<CopyBatch>> *ended);
    CUresult stage(const BatchedCopy &copy);

    const CUcontext context_;
    const unsigned long long id_;
    const std::shared_ptr<const KernelCode> kernels_;
    std::optional<CancellationSlot> slot_;
    CUstream stream_ = nullptr;          // of the kernel
    CUstream staging_stream_ = nullptr;  // of all that no kernel may hold up
    std::vector<CUevent> free_events_;

    std::deque<Launch> launches_;                     // in the order of the stream
    size_t launched_ = 0;                             // of them, with a batch
    std::deque<std::shared_ptr<CopyBatch>> waiting_;  // for a place in the stream
    uint64_t waits_since_ = 0;  // monotonic_nanoseconds() when the first of them could begin
    uint64_t patience_ = 0;     // how long it may take to begin

    Exchange exchange_ = Exchange::none;
    bool exchange_submitted_ = false;  // else the driver refused it
    unsigned exchange_tries_ = 0;
    uint32_t exchange_number_ = 0;  // of the first launch when it began
    CUevent exchange_event_ = nullptr;
    bool retries_cancellation_ = false;  // it was given up

    std::deque<std::shared_ptr<CopyBatch>>
        staged_;               // to go through host memory; the first one is under way
    size_t staged_bytes_ = 0;  // of it
    size_t piece_bytes_ = 0;   // of it that are on their way; 0: none
    CUevent piece_event_ = nullptr;
    std::optional<HostBlock> block_;  // of both; while there is something to exchange or to copy
};

}  // namespace gpushm
