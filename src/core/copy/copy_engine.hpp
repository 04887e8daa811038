// SPDX-License-Identifier: BSD-3-Clause
// Copies between memory kinds by the driver's copy functions, on streams of our own.
#pragma once

#include "core/base/status.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/memory/memory_info.hpp"
#include "core/standby/standby_kernel.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

/** Which way a copy goes, seen from the GPU; decides the stream, so that both directions of the
 * link are busy at once. A copy between two GPU buffers is to_gpu. */
enum class CopyDirection { to_gpu, from_gpu };

struct BatchedCopy;
struct CopyBatch;
class CancellableCopies;

/** No standby kernel is given a longer copy; and no longer one of device memory whose other side is
 * not of the same GPU. */
constexpr size_t kMaxStandbyBytes = 1u << 20;
constexpr size_t kMaxStandbyElsewhere = 768u << 10;

/** Equal pieces of memory at equal distances, which one call of the driver copies. */
struct CopyRows {
    size_t count = 1;
    size_t destination_pitch = 0;  // bytes from one row to the next, at least those of a row
    size_t source_pitch = 0;
};

/** The most that CopyEngine::start_by_kernel() takes. */
constexpr size_t kMaxKernelJobs = 1024;

/** Where the side of a copy lies that is not `gpu_side`, as far as the caller knows. */
enum class OtherSide { unknown, same_gpu, elsewhere };

/** What is to be copied. */
struct CopyJob {
    void *destination;
    const void *source;
    size_t length;               // bytes of a row
    const MemoryInfo &gpu_side;  // one of both sides, which needs a GPU: its context copies
    CopyDirection direction;
    bool in_reach = false;  // kernels_reach() both sides; else the engine looks itself
    CopyRows rows = {};
    bool from_host =
        false;            // from page-locked host memory; of SegmentTable the engine sees it itself
    bool urgent = false;  // nothing else is on its way but the rest of this transfer, whose end is
                          // what counts
    bool source_may_go =
        false;  // it is of gpu_side, and if it is freed before the copy begins nobody wants that
    OtherSide other_side = OtherSide::unknown;  // same_gpu: and in_reach
    size_t transfer_bytes = 0;  // of the transfer that it is a piece of; 0: it is all
    // Within a Scope, and while others are under way, it may be started with those that follow, up
    // to so many bytes. Not of copies within a GPU, which a kernel of the application may hold up.
    size_t joint_bytes = 0;
};

/** Whether kernels of `context`, one of `device`, surely reach [address, +length), which `info` is
 * of and which is not empty: memory of that context, or of none that it may access, or page-locked
 * memory that is mapped. What another context has on the same GPU the manual promises only behind
 * cuCtxEnablePeerAccess. A wrong address would end the application's context, where a copy engine
 * returns an error. The context must be current for page-locked memory. */
bool kernels_reach(const MemoryInfo &info, const void *address, size_t length, CUdevice device,
                   CUcontext context);

/** A launch of one of our kernels. */
struct KernelLaunch {
    Kernel kernel;
    unsigned blocks;
    unsigned threads;  // of a block
    void *parameters;  // the struct that is its only parameter
    unsigned blocks_y = 1;
    const void *host_memory = nullptr;  // what it reads of PinnedBufferPool; null: nothing
};

/** How CopyEngine::run() ended. */
enum class KernelsEnd {
    ran,      // all of them
    refused,  // one was not launched; those before it have ended, the others were not launched
              // either
    unknown,  // of those that were launched some may still run
};

/** A copy under way, or over; null batch: complete from the start. A ticket may outlive its engine.
 */
struct CopyTicket {
    std::shared_ptr<CopyBatch> batch;
    size_t index = 0;
};

/** One thread at a time. No copy waits for work of the application: the streams are non-blocking
 * (CU_STREAM_NON_BLOCKING). The caller's current context is what it was after every call, and a
 * stream capture in progress in any thread is not disturbed; a context is never made, but the
 * primary one of a device whose memory names no context is retained.
 *
 * Small copies are done by the standby kernel of the context while it is there
 * (standby_kernel.hpp), others within a GPU by a kernel of ours (cancellable_copies.hpp). Else
 * those that are started while others run are collected and submitted together (cuMemcpyBatchAsync:
 * 0.6 to 0.7 us each instead of 2.3, where the driver has it). */
class CopyEngine {
public:
    CopyEngine() = default;
    CopyEngine(const CopyEngine &) = delete;
    CopyEngine &operator=(const CopyEngine &) = delete;
    ~CopyEngine();

    /** Starts a copy of which at least one side needs the GPU. ok or in_progress (then progress()
     * until poll() says how it ended); otherwise gpu_error, logged. Both sides must stay as they
     * are until completion; shared segments are page-locked on the way. */
    Status start(const CopyJob &job, CopyTicket *ticket);

    /** Copies and waits; ok or gpu_error, logged. */
    Status copy(const CopyJob &job);

    /** As start(), all at once by a kernel, if that is quicker and possible: at most
     * kMaxKernelJobs of one context and one direction. False: nothing was started. Else a ticket
     * for each is added to `tickets`. A kernel of the application that takes the whole GPU holds
     * them up. */
    bool start_by_kernel(const std::vector<CopyJob> &jobs, std::vector<CopyTicket> *tickets);

    /** Whether a kernel that run() launches with this `gpu_side` surely reaches [address, +length).
     */
    bool is_in_reach(const MemoryInfo &gpu_side, const void *address, size_t length);
    /** Runs kernels, one after the other, in the context that a copy with this `gpu_side` uses, and
     * waits; logged when that fails, unless there are no kernels in this context. After `unknown`
     * the engine is not to be used again, and what the kernels read stays as it is. */
    KernelsEnd run(const MemoryInfo &gpu_side, const std::vector<KernelLaunch> &launches);

    /** The context that a copy with this `gpu_side` uses; null when there is none. */
    CUcontext context_of(const MemoryInfo &gpu_side);
    /** A context for copies between host memory and the GPU device_identity() `device`: the primary
     * one of that GPU, else of another, else the current one; only what the process has already.
     * Null when there is none that lives. */
    CUcontext context_near(uint64_t device);

    /** Asks the driver what is complete and submits what was collected; the number of things that
     * happened. Costs nothing when nothing is under way. */
    unsigned progress() { return idle() ? 0 : advance_all(); }
    /** Nothing is under way. */
    bool idle() const { return under_way_ == 0; }

    /** What progress() found: in_progress, ok or gpu_error; after the last two the ticket is used
     * up. Costs nothing. */
    Status poll(CopyTicket *ticket);

    /** Waits for a ticket; ok or gpu_error. */
    Status wait(CopyTicket *ticket);

    /** While it lives, driver calls of the engine share one exchange of the thread's capture mode,
     * and copies with joint_bytes are collected. */
    class Scope;

private:
    /** A stream and what was given to it. */
    struct Stream {
        CUstream handle = nullptr;  // made on first use
        std::deque<std::shared_ptr<CopyBatch>> submitted;
        std::shared_ptr<CopyBatch> collected;  // not submitted yet
        std::shared_ptr<CopyBatch> last_done;
    };

    static constexpr size_t kStreams = 4;  // {small, bulk} x direction

    /** Which of the contexts that have a handle, one after the other. */
    struct Life {
        unsigned long long id = 0;  // CudaDriver::context_id
        uint64_t epoch = 0;         // context_epoch() when it was last seen alive
    };
    enum class Look { alive, ended, unknown };

    /** Streams and events of one context, made on first use. */
    struct Context {
        Context();
        ~Context();
        Life life;
        Stream streams[kStreams];
        std::vector<CUevent> free_events;
        std::shared_ptr<StandbyKernel> standby;        // null: none
        std::shared_ptr<const KernelCode> kernels;     // null: none
        std::deque<std::shared_ptr<CopyBatch>> given;  // to it, of one copy each
        std::shared_ptr<CopyBatch> last_served;
        std::unique_ptr<CancellableCopies> cancellable;  // made on first use
        std::shared_ptr<CopyBatch> last_cancellable;
    };
    using Contexts = std::map<CUcontext, Context>;

    /** What context_near() found. */
    struct NearContext {
        CUcontext handle = nullptr;
        Life life;
    };

    /** What a copy needs. */
    struct Means {
        CUcontext handle = nullptr;
        Context *context = nullptr;
        bool destination_pinned = false;  // it lies in a page-locked segment of ours
        bool source_pinned = false;
    };

    CUcontext find_near(uint64_t device);
    static Look look_at(CUcontext handle, Life &life);
    static bool identify(CUcontext handle, Life *life);
    Context *enter(CUcontext handle);
    Contexts::iterator drop_ended(Contexts::iterator ended);
    bool make_stream(CUcontext handle, const Context &context, Stream &stream);
    bool find_context(const CopyJob &job, Means *means);
    Stream *find_stream(CUcontext handle, Context &context, size_t length, CopyDirection direction);
    static bool kernels_reach_both(const CopyJob &job, const Means &means, bool managed_too);
    bool kernel_can_copy(const CopyJob &job);
    bool give_to_standby(const CopyJob &job, const Means &means, StandbyTicket *ticket);
    void submit_unserved(CUcontext handle, Context &context,
                         const std::shared_ptr<CopyBatch> &batch);
    void note_given(Context &context, const CopyJob &job, const StandbyTicket &standby,
                    CopyTicket *ticket);
    static Status await_standby(StandbyKernel &standby, StandbyTicket ticket);
    static bool has_lost_memory(const CopyBatch &batch);
    unsigned advance_given(CUcontext handle, Context &context);
    static bool is_within_gpu(const CopyJob &job, const Means &means);
    bool start_within_gpu(const CopyJob &job, const Means &means, CopyTicket *ticket);
    static bool was_within_gpu(const CopyBatch &batch);
    bool start_cancellable(CUcontext handle, Context &context,
                           const std::shared_ptr<CopyBatch> &batch);
    unsigned advance_cancellable(Context &context);
    static CUresult submit_copy(CUcontext handle, const Context &context, const Stream &stream,
                                const BatchedCopy &copy);
    CUevent take_event(CUcontext handle, Context &context);
    void submit_collected(CUcontext handle, Context &context, Stream &stream);
    void submit(CUcontext handle, Context &context, Stream &stream,
                const std::shared_ptr<CopyBatch> &batch);
    static CUresult launch(CUcontext handle, const Context &context, const Stream &stream,
                           const KernelLaunch &launch);
    static bool submit_copies(CUcontext handle, const Context &context, const Stream &stream,
                              CopyBatch &batch);
    static bool launch_copies(CUcontext handle, const Context &context, const Stream &stream,
                              CopyBatch &batch);
    static void drop_gone(CopyBatch &batch);
    unsigned advance_all();
    static bool is_busy(const Context &context);
    unsigned advance(CUcontext handle, Context &context, Stream &stream);
    void forget(CUcontext handle);
    void fail_all(Context &context);
    void end(CopyBatch &batch);
    unsigned end_all();
    void relax_capture();
    void submit_joint();
    void end_scope();

    Contexts contexts_;
    std::vector<std::shared_ptr<CopyBatch>> ended_;  // of CancellableCopies; empty between calls
    std::map<CUdevice, CUcontext> primary_contexts_;
    std::map<uint64_t, NearContext> near_contexts_;  // of GPUs by device_identity()
    size_t under_way_ = 0;  // batches that are given, submitted or collected
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
