// SPDX-License-Identifier: BSD-3-Clause
// The standby kernel as the CPU sees it: a copy engine for small messages that is already running.
#pragma once

#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/standby/copy_runs.hpp"
#include "core/standby/launch_use.hpp"
#include "core/standby/program_kernels.hpp"
#include "core/standby/standby_queue.hpp"

#include <atomic>
#include <cstdint>

namespace gpushm {

/** When the kernel runs. when_it_pays: where CopyRuns are long and ProgramKernels few. */
struct StandbyConfig {
    enum class Mode { off, when_it_pays, whenever_possible };
    Mode mode = Mode::off;
    uint32_t beat_limit_ns = 200'000;    // it leaves so long after the last beat
    uint32_t life_limit_ns = 2'000'000;  // and so long after its launch in any case
};

/** The kernel of one context.
 *
 * - It is launched while a thread of the process waits for messages or copies and small copies have
 *   been seen lately, never in front of a copy that is alone.
 * - It takes commands once it has said that it runs.
 * - It leaves by itself soon after the waiting has stopped, and after a bounded life in any case.
 * - Nothing depends on it: a command that it does not serve is copied by other means.
 *
 * Thread safe. */
class StandbyKernel {
public:
    StandbyKernel(CUcontext context, unsigned long long context_id, const StandbyConfig &config)
        : context_(context), context_id_(context_id), config_(config) {}
    StandbyKernel(const StandbyKernel &) = delete;
    StandbyKernel &operator=(const StandbyKernel &) = delete;
    ~StandbyKernel();

    /** Counts a small copy that is made for a message: small copies make the kernel worth a launch.
     * `is_costly`: one of them may be worth a launch (LaunchUse). */
    void note_copy(bool is_costly = false);

    /** Whether give() would take a command now, if there is room for it. */
    bool alive() const;
    /** Whether a kernel may still touch memory, retired or not. */
    bool is_there() const;
    /** Asks the driver whether a kernel that does not leave was killed. Then it is not there any
     * more. */
    bool look_whether_killed();

    /** Makes it ready, once. Loads the code if nobody has (KernelCode::load). */
    void load();

    /** Whether it copies such rows of `length` bytes. */
    bool takes(const CopyRows &rows, size_t length) const { return fit_command(rows, length); }

    /** Gives it a copy. False: no kernel takes it. Else the caller asks state() with `*ticket`
     * until that is not `waiting`, or calls abandon(). */
    bool give(const StandbyJob &copy, StandbyTicket *ticket);

    enum class State { waiting, served, not_served };
    /** served: the bytes are there, visible to the CPU, to other processes and to kernels that are
     * launched afterwards. not_served: nothing is copied any more; part of a destination that
     * cpu_may_write may have been. Asking keeps the kernel alive. */
    State state(StandbyTicket *ticket);
    /** Asks for the state until it is not `waiting`. */
    State await(StandbyTicket ticket);
    /** Nobody asks for the state of a command that was given any more. It may be served. */
    void abandon() { queue_.end_command(); }

    /** Logs what it did so far, at level debug. */
    void log_use();

    /** Tells it to leave at once, and does not wait. */
    void dismiss();
    /** Ends its use: it is dismissed and never launched again. */
    void retire();

    /** Whether it is a cluster of blocks, which moves large copies several times as fast as one. */
    bool is_cluster() const { return cluster_function_.load(std::memory_order_relaxed) != nullptr; }

    /** What the process does when it tends its kernels. */
    enum class Moment {
        idle,  // nothing happened since the last time
        busy,
        costly,  // it gives the driver copies that take longer than a launch
    };
    /** For StandbyKernels::tend(), one thread at a time. `now` is in ns of steady_clock. False: it
     * need not be called before the next note_copy(). */
    bool tend(Moment moment, bool may_launch, uint64_t now);

private:
    enum class Code { absent, loading, loaded, unusable };
    bool convert_limits(const CudaDriver *driver);
    bool pays() const { return runs_.are_long() && !program_kernels_.are_many(); }
    bool is_in_use(uint64_t now) const;
    bool has_left() const { return has_left(launch_.load(std::memory_order_relaxed)); }
    bool has_left(uint32_t launch) const;
    void await_end();
    void beat(uint64_t now);
    bool claim_gpu(uint64_t now);
    bool is_good_moment(Moment moment, uint64_t now) const;
    void look_whether_it_left(uint64_t now);
    void launch(uint64_t now);
    CUresult launch_kernel(StandbyParameters *parameters);
    void give_up(const char *why, CUresult result);

    const CUcontext context_;
    const unsigned long long context_id_;
    const StandbyConfig config_;
    std::atomic<Code> code_{Code::absent};
    // Written by load(), constant afterwards.
    StandbyQueue queue_;
    CUfunction block_function_ = nullptr;
    CUstream stream_ = nullptr;
    uint32_t beat_limit_cycles_ = 0;
    uint32_t life_limit_ns_ = 0;
    uint64_t beat_interval_ns_ = 0;
    CUdevice device_ = 0;

    std::atomic<CUfunction> cluster_function_{
        nullptr};                         // null: there is none, or it could not be launched
    std::atomic<uint64_t> last_copy_{0};  // when, in ns of steady_clock
    std::atomic<uint32_t> copies_{0};     // in a row, without a long pause
    std::atomic<uint32_t> pauses_{0};     // between copies, longer than the beat may stop
    CopyRuns runs_;
    ProgramKernels program_kernels_;
    LaunchUse launch_use_;
    std::atomic<uint32_t> launch_{0};    // number of the last launch, which begins; 0: none
    std::atomic<uint32_t> launched_{0};  // of the last one that the driver has taken
    std::atomic<bool> running_{false};   // it was launched and is not known to have left
    std::atomic<bool> killed_{false};

    std::atomic<uint32_t> polls_{0};
    std::atomic<uint64_t> last_beat_{0};  // when, in ns of steady_clock
    uint64_t launches_ = 0;               // guarded by the mutex of queue_
    uint64_t given_before_ = 0;           // the last launch, in all; guarded likewise
    std::atomic<uint64_t> all_not_served_{0};

    // tend() only
    uint64_t idle_since_ = 0;  // 0: not idle
    uint64_t left_at_ = 0;     // when the last one was seen to have left
    uint64_t next_claim_ = 0;  // not before
};

}  // namespace gpushm
