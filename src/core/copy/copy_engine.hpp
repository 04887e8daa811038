// SPDX-License-Identifier: BSD-3-Clause
// Copies between memory kinds by a GPU: by the driver's copy functions and by kernels of ours.
#pragma once

#include "core/base/status.hpp"
#include "core/copy/context_choice.hpp"
#include "core/copy/copy_operands.hpp"
#include "core/copy/copy_types.hpp"
#include "core/copy/gpu_context.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/reduction_kernel.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

/** Starts copies and finds out how they end. One thread at a time.
 *
 * - No copy waits for work of the application: the streams are non-blocking
 *   (CU_STREAM_NON_BLOCKING).
 * - After every call the caller's current context is the one from before.
 * - A stream capture in progress in any thread is not disturbed.
 * - A context is never made, but the primary one of a device whose memory names no context is
 *   retained.
 *
 * The standby kernel of the context makes small copies while it is there (standby_kernel.hpp),
 * another kernel makes copies within a GPU (cancellable_copies.hpp), and the driver makes all
 * others. Copies for the driver that are started while others run are collected and submitted
 * together (cuMemcpyBatchAsync, where the driver has it). */
class CopyEngine {
public:
    CopyEngine() = default;
    CopyEngine(const CopyEngine &) = delete;
    CopyEngine &operator=(const CopyEngine &) = delete;
    ~CopyEngine();

    /** Starts a copy of which at least one side needs the GPU. ok or in_progress (then progress()
     * until poll() says how it ended); otherwise gpu_error, logged. Both sides must stay as they
     * are until the copy ends. Segments of SegmentTable are page-locked on the way. */
    Status start(const CopyJob &job, CopyTicket *ticket);

    /** Copies and waits; ok or gpu_error, logged. */
    Status copy(const CopyJob &job);

    /** Starts all jobs together by a kernel, if that is quicker and possible: at most
     * kMaxKernelJobs of one context and one direction. False: nothing was started. Else a ticket
     * for each job is added to `tickets`. A kernel of the application that fills the GPU holds the
     * copies up. */
    bool start_by_kernel(const std::vector<CopyJob> &jobs, std::vector<CopyTicket> *tickets);

    /** Starts a reduction that takes the place of a copy: it reads the copy's source and writes the
     * copy's destination. False: nothing was started. The ticket tells how it ends; behind an error
     * the kernel may still write. A kernel of the application that fills the GPU holds it up, but
     * no copy. */
    bool start_reduction(const CopyJob &job, const ReductionParameters &reduction,
                         CopyTicket *ticket);

    /** Whether start() would give the copy to the standby kernel now. Costs a load where the
     * process has none. */
    bool is_left_to_standby(const CopyJob &job);

    /** Counts copies that are made by a launch for themselves, if the standby kernel would make
     * them where it is there: a program that has no others would never have it. For at most
     * kMostCopiesOfRows jobs. */
    void note_for_standby(const std::vector<CopyJob> &jobs);

    /** Whether start() copies [source, +length) to memory of cuMemAlloc of the same context even if
     * a kernel of the application fills the GPU, unless the driver refuses the launch. The job has
     * other_side same_gpu and source_may_be_unmapped. `gpu_side`: of the source, which may be of a
     * pool, or managed. */
    bool can_copy_within_gpu(const MemoryInfo &gpu_side, const void *source, size_t length);
    /** Whether a kernel that run() launches with this `gpu_side` surely reaches [address, +length).
     */
    bool is_in_reach(const MemoryInfo &gpu_side, const void *address, size_t length);
    /** Runs kernels, one after the other, in the context that a copy with this `gpu_side` uses, and
     * waits. A failure is logged, unless the context has no kernels. After `unknown` the engine
     * must not be used again, and what the kernels read must stay as it is. */
    KernelsEnd run(const MemoryInfo &gpu_side, const std::vector<KernelLaunch> &launches);

    /** The context that a copy with this `gpu_side` uses; null when there is none. */
    CUcontext context_of(const MemoryInfo &gpu_side) { return choice_.context_of(gpu_side); }
    /** A context for copies between host memory and the GPU device_identity() `device`: the primary
     * one of that GPU, else the primary one of another, else the current one. The process has it
     * already, and it lives. Null when there is none. */
    CUcontext context_near(uint64_t device) { return choice_.context_near(device); }

    /** Asks the driver what is complete and submits what was collected. Returns the number of
     * things that happened. Costs nothing when nothing is under way. */
    unsigned progress() { return idle() ? 0 : advance_all(); }
    /** Nothing is under way. */
    bool idle() const { return under_way_ == 0; }

    /** What progress() has found out: in_progress, ok or gpu_error. After the last two the ticket
     * is used up. Never asks the driver. */
    Status poll(CopyTicket *ticket);

    /** Waits for a ticket, and tends the standby kernels meanwhile; ok or gpu_error. */
    Status wait(CopyTicket *ticket);

    /** While it lives, driver calls of the engine share one exchange of the thread's capture mode,
     * and copies with joint_bytes are collected. */
    class Scope;

private:
    using Contexts = std::map<CUcontext, GpuContext>;

    /** What a copy needs. */
    struct Means {
        explicit Means(const CopyJob &job) : operands(job) {}
        GpuContext *context = nullptr;
        CopyOperands operands;
    };

    GpuContext *enter(CUcontext handle);
    Contexts::iterator drop_ended(Contexts::iterator ended);
    void forget(Contexts::iterator context);
    void fail_all(GpuContext &context);
    void end(CopyBatch &batch);
    void relax_capture();

    GpuContext *find_context(const CopyJob &job);
    bool find_means(const CopyJob &job, Means *means);
    CopyStream *find_stream(GpuContext &context, size_t bytes, CopyDirection direction);
    void collect(const CopyJob &job, Means &means, CopyStream &stream, CopyTicket *ticket);
    static Status copy_by_driver(const CopyJob &job, Means &means, const CopyStream &stream);

    bool kernel_can_copy(const CopyJob &job, Means &means);

    // By the standby kernel.
    static bool kernels_reach_side(const CopyJob &job, const Means &means, CopyOperand &side,
                                   size_t pitch, bool managed_too);
    static bool kernels_reach_both(const CopyJob &job, Means &means, bool managed_too);
    bool is_for_standby(const CopyJob &job, Means &means, bool from_host) const;
    void note_for_standby(const CopyJob &job, Means &means) const;
    bool give_to_standby(const CopyJob &job, Means &means, StandbyTicket *ticket);
    Status note_or_await(const CopyJob &job, Means &means, const StandbyTicket &standby,
                         CopyTicket *ticket);
    void submit_unserved(GpuContext &context, const std::shared_ptr<CopyBatch> &batch);
    unsigned advance_given(GpuContext &context);

    // By CancellableCopies.
    static bool is_within_gpu(const CopyJob &job, Means &means);
    static bool waits_for_kernels(const CopyJob &job);
    bool start_within_gpu(const CopyJob &job, Means &means, CopyTicket *ticket);
    unsigned advance_cancellable(GpuContext &context);

    // By the driver.
    void submit(GpuContext &context, CopyStream &stream, std::shared_ptr<CopyBatch> given);
    bool submit_new(GpuContext &context, CopyStream &stream,
                    const std::shared_ptr<CopyBatch> &batch);
    void end_unsubmitted(GpuContext &context, CopyStream &stream, CopyBatch &batch, bool runs);
    void submit_joint();
    void end_scope();
    unsigned advance_all();
    unsigned advance(GpuContext &context, CopyStream &stream);

    Contexts contexts_;
    ContextChoice choice_;
    std::vector<std::shared_ptr<CopyBatch>> ended_;  // of CancellableCopies; empty between calls
    size_t under_way_ = 0;                           // batches that have not ended
    unsigned scopes_ = 0;
    bool has_joint_ = false;  // something collected goes out when the last scope ends
    std::optional<RelaxedCapture> capture_;  // until the last scope ends
};

class CopyEngine::Scope {
public:
    explicit Scope(CopyEngine &engine) : engine_(engine) { ++engine_.scopes_; }
    ~Scope() { engine_.end_scope(); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

private:
    CopyEngine &engine_;
};

}  // namespace gpushm
