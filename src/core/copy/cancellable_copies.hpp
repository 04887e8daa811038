// SPDX-License-Identifier: BSD-3-Clause
// Copies within one GPU that end even if a kernel of the application fills the GPU.
#pragma once

#include "core/copy/copy_batch.hpp"
#include "core/copy/staged_copies.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/kernels/cancellable_copy_kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace gpushm {

/** The copies of one context, made by the kernel of cancellable_copy_kernel.cu in a stream of its
 * own.
 *
 * A kernel of the application may fill the GPU until a message has come, while the copy of that
 * message waits for room on the GPU. So copies that do not begin within kPatience are cancelled:
 * our kernel learns that nobody wants them any more. They go through page-locked host memory
 * instead, by the copy engines, which no kernel holds up (StagedCopies). Later copies do, too,
 * until the launches that were cancelled have left the stream. See
 * doc/decisions/copy-within-a-gpu.md.
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
    /** Everything has ended, or nobody asks for its end any more. Frees nothing in a context that
     * has ended. */
    ~CancellableCopies();

    /** A batch of one copy, of one row, between memory that kernels of the context reach.
     * `through_host`: it is not to wait for kernels of other processes. False: nothing was started.
     */
    bool start(const std::shared_ptr<CopyBatch> &batch, bool through_host);

    /** Nothing that was started is under way. */
    bool idle() const { return launched_ == 0 && waiting_.empty() && staged_.count() == 0; }

    /** Adds to `ended` the batches that have ended. Failed ones are marked, and logged. */
    void advance(std::vector<std::shared_ptr<CopyBatch>> *ended);

    /** For a context of which no answer will come: marks as failed what has not ended, and passes
     * each batch to `end`. */
    void abandon(const std::function<void(CopyBatch &)> &end);

private:
    /** Whether a copy was made, once its kernel has ended; in_doubt: the copy was cancelled, but
     * may have begun before. */
    enum class Made { yes, no, in_doubt, unknown };

    /** A kernel in the stream. All copies are cancelled together, and no copy is added before those
     * have left the stream: copies in doubt come before copies that surely are not made. */
    struct Launch {
        std::shared_ptr<CopyBatch> batch;  // null: it was cancelled, and is staged
        CUevent event = nullptr;           // behind it; null: the stream is asked
        uint32_t number = 0;
        uint32_t begun_before = 0;
        Made made = Made::yes;
    };

    /** What is asked of the GPU: whether the first copy has begun (look), to make no copy that has
     * not begun (cancel), or whether the first copy, which is in doubt, was made (resolve). */
    enum class Exchange { none, look, cancel, resolve };

    CancellableCopies(CUcontext context, unsigned long long id,
                      std::shared_ptr<const KernelCode> kernels)
        : context_(context),
          id_(id),
          kernels_(std::move(kernels)),
          events_(context, id),
          staged_(context, id, events_) {}
    bool make_streams();

    bool is_stuck() const { return !launches_.empty() && launches_.front().batch == nullptr; }
    /** No copy may be added to the stream: its words could be mistaken for those of other copies.
     */
    bool is_closed() const {
        return is_stuck() || (!launches_.empty() && launches_.front().made != Made::yes);
    }
    bool has_room() const;
    bool launch(const std::shared_ptr<CopyBatch> &batch);
    CancellableCopy describe(const BatchedCopy &copy) const;
    CUresult ask(CUevent event) const;
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

    const CUcontext context_;
    const unsigned long long id_;
    const std::shared_ptr<const KernelCode> kernels_;
    std::optional<CancellationSlot> slot_;
    CUstream stream_ = nullptr;  // of the kernel
    EventPool events_;
    StagedCopies staged_;

    std::deque<Launch> launches_;                     // in the order of the stream
    size_t launched_ = 0;                             // of them, with a batch
    std::deque<std::shared_ptr<CopyBatch>> waiting_;  // for a place in the stream
    uint64_t waits_since_ = 0;  // monotonic_nanoseconds() when the first of them could begin
    uint64_t patience_ = 0;     // how long it may take to begin

    Exchange exchange_ = Exchange::none;
    unsigned exchange_tries_ = 0;
    uint32_t exchange_number_ = 0;       // of the first launch when it began
    bool retries_cancellation_ = false;  // it was given up
};

}  // namespace gpushm
