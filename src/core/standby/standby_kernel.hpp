// SPDX-License-Identifier: BSD-3-Clause
// The standby kernel as the CPU sees it: a copy engine for small messages that is already running.
#pragma once

#include "core/base/message_payload.hpp"
#include "core/base/unique_fd.hpp"
#include "core/cuda/by_context.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/standby/standby_worth.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace gpushm {

/** When the kernel runs. when_it_pays: where StandbyWorth finds that the process is quicker with
 * it. */
struct StandbyConfig {
    enum class Mode { off, when_it_pays, whenever_possible };
    Mode mode = Mode::off;
    uint32_t beat_limit_ns = 200'000;
    uint32_t life_limit_ns = 500'000;
};

/** What a copy is for. `destination` and `source` are in reach of kernels of the context for as
 * long as it is under way (a wrong address destroys the context), but for what the CPU touches. */
struct StandbyJob {
    void *destination;
    const void *source;
    size_t length;  // > 0
    /** The source is host memory that may be read now and changed afterwards. */
    bool cpu_may_read = false;
    /** The destination is host memory that StandbyKernel::state() may write. */
    bool cpu_may_write = false;
    /** The destination is memory of the context's GPU. */
    bool to_own_gpu = false;
    /** The message of which the source is payload; 0: of none. */
    uint64_t message = 0;
    /** What is copied next, most likely, and in reach as well. The kernel reads it while the CPU is
     * told that this copy has ended, so that the next one does not wait for the bus. It may do so
     * until it has left (StandbyKernels::Absence). */
    MessagePayload next = {};
};

/** A copy that a kernel was given. */
struct StandbyTicket {
    uint32_t end = 0;  // its first unit after it
    // An answer: what of it is still to come, and where that belongs.
    uint32_t answer = 0;        // its number
    uint32_t answer_units = 0;  // that were taken
    size_t answer_length = 0;   // 0: it is none
    void *answer_to = nullptr;
};

/** The kernel of one context. It is started while a thread of the process waits for messages and
 * small copies have been seen lately, never in front of a copy that is alone; it takes commands
 * once it has said that it runs, and leaves by itself soon after the waiting has stopped, and after
 * a bounded life in any case. What it was given and did not serve, its giver copies otherwise:
 * nothing depends on it.
 *
 * Thread safe. */
class StandbyKernel {
public:
    StandbyKernel(CUcontext context, unsigned long long context_id, const StandbyConfig &config)
        : context_(context), context_id_(context_id), config_(config) {}
    StandbyKernel(const StandbyKernel &) = delete;
    StandbyKernel &operator=(const StandbyKernel &) = delete;
    ~StandbyKernel();

    /** A small copy was or will be done for a message: what makes it worth to be there. */
    void note_copy();

    /** Whether give() would take a command now, if there is room for it. */
    bool alive() const;
    /** Whether one may still touch memory, retired or not. */
    bool is_there() const;
    /** Asks the driver for one that does not leave; one that was killed is not there any more. */
    bool look_whether_killed();

    /** Makes it ready, once; loads the code if nobody has (KernelCode::load). */
    void load();

    /** False when no kernel takes it. Else state() is to be asked with `*ticket` until it does not
     * say `waiting`. */
    bool give(const StandbyJob &copy, StandbyTicket *ticket);

    enum class State { waiting, served, not_served };
    /** served: the bytes are there, visible to the CPU, to other processes and to kernels that are
     * launched afterwards. not_served: nothing is copied any more; of a destination that
     * cpu_may_write a part may be. Keeps the kernel alive. */
    State state(StandbyTicket *ticket);
    /** Nobody asks for the state of a command that was given; it may be served all the same. */
    void abandon(const StandbyTicket &ticket);

    /** What it did so far, for the log. */
    void log_use();

    /** Has it leave at once, without waiting for that. */
    void dismiss();
    /** It is not used any more. */
    void retire();
    bool is_loaded() const { return code_.load(std::memory_order_acquire) == Code::loaded; }
    /** Once it is loaded. */
    CUdevice device() const { return device_; }

    /** Whether several blocks do it, which move large copies several times as fast. */
    bool is_cluster() const { return cluster_function_.load(std::memory_order_relaxed) != nullptr; }

    /** What the process does when it tends its kernels. */
    enum class Moment {
        idle,  // nothing happened since the last time
        busy,
        costly,  // it gives the driver copies that take longer than a launch
    };
    /** For StandbyKernels::tend, one thread at a time; `now` in ns of steady_clock. False when it
     * need not be called before the next note_copy(). */
    bool tend(Moment moment, bool may_launch, uint64_t now);

private:
    enum class Code { absent, loading, loaded, unusable };
    bool make_control(const CudaDriver *driver);
    bool convert_limits(const CudaDriver *driver);
    bool is_in_use(uint64_t now) const;
    void weigh(uint64_t now);
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
    bool ends_batch(const StandbyJob &copy);
    bool reads_ahead(const StandbyJob &copy) const;
    uint32_t reader_of(const StandbyJob &copy) const;
    void write_command(const StandbyJob &copy, uint32_t argument, uint32_t answer);
    void write_unit(StandbyUnit unit);
    void write_payload(const unsigned char *payload, size_t length);
    uint32_t next_answer();
    bool has_come(StandbyTicket *ticket) const;

    const CUcontext context_;
    const unsigned long long context_id_;
    const StandbyConfig config_;
    std::atomic<Code> code_{Code::absent};
    // Written by load(), constant afterwards.
    StandbyControl *control_ = nullptr;
    CUfunction block_function_ = nullptr;
    CUstream stream_ = nullptr;
    uint32_t beat_limit_cycles_ = 0;
    uint64_t beat_interval_ns_ = 0;
    CUdevice device_ = 0;

    std::atomic<CUfunction> cluster_function_{
        nullptr};                         // null: there is none, or it could not be launched
    std::atomic<uint64_t> last_copy_{0};  // when, in ns of steady_clock
    std::atomic<uint32_t> copies_{0};     // in a row, without a long pause
    std::atomic_flag weighing_ = ATOMIC_FLAG_INIT;  // by a thread, whom the others do not wait for
    StandbyWorth worth_;
    std::atomic<bool> pays_{true};       // what it says
    std::atomic<uint32_t> launch_{0};    // number of the last launch, which begins; 0: none
    std::atomic<uint32_t> launched_{0};  // of the last one that the driver has taken
    std::atomic<bool> running_{false};   // it was launched and is not known to have left
    std::atomic<bool> killed_{false};

    std::atomic<uint32_t> waiting_{0};  // commands whose end nobody has seen yet
    std::atomic<uint32_t> polls_{0};
    std::atomic<uint64_t> last_beat_{0};

    std::mutex mutex_;
    uint32_t next_ = 1;  // the unit that is written next
    uint32_t answers_ =
        UINT32_MAX - 100;        // number of the last one; the numbers soon begin again, at 1
    MessagePayload read_ahead_;  // by the command of this number, if the kernel that has served it
                                 // is still there
    uint32_t reader_ = 0;
    size_t batch_bytes_ = 0;  // through the host, since a command that ends a batch
    uint64_t launches_ = 0;
    uint64_t all_given_ = 0;
    std::atomic<uint64_t> all_not_served_{0};

    // tend() only
    uint64_t idle_since_ = 0;  // 0: not idle
    uint64_t left_at_ = 0;     // when the last one was seen to have left
    uint64_t next_claim_ = 0;  // not before
};

/** Those of the process. */
class StandbyKernels {
public:
    static StandbyKernels &instance();

    /** From now on; the first caller decides. */
    void configure(const StandbyConfig &config);

    /** Makes the kernel of a context ready (StandbyKernel::load); does nothing when there is one.
     */
    void prepare(CUcontext context);
    /** The kernel of a context; null where there is none: it is switched off, or the driver or the
     * build lacks what it needs, or the context was not prepared. `id`: CudaDriver::context_id().
     */
    std::shared_ptr<StandbyKernel> find(CUcontext context, unsigned long long id);

    /** Whether this process has the right to run standby kernels on a GPU: one process at a time,
     * for those of two would take turns by time slices of 2 ms. It has it until it ends, or
     * leave_to_peer(). Processes of other network namespaces do not see it. From tend() only. */
    bool claim(CUdevice device);

    /** A peer copies for this process on the GPU of `context`: its kernel is wanted there, not
     * ours. */
    void leave_to_peer(CUcontext context);

    /** To be called again and again by threads that wait for messages. Costs a load while no kernel
     * is wanted. */
    void tend(StandbyKernel::Moment moment) {
        if (wanted()) {
            tend_all(moment);
        }
    }
    /** While one lives, no kernel is launched; those that run have left, or were told to and did
     * not within `patience_ns`. For calls of the driver that wait for all work of a GPU. */
    class Absence {
    public:
        /** A kernel that runs sees within 2 us that it is to leave; one of which the GPU has
         * stopped all, not. */
        static constexpr uint64_t kPatienceNs = 5000;

        explicit Absence(uint64_t patience_ns = kPatienceNs)
            : complete_(instance().begin_absence(patience_ns)) {}
        /** None is there: nothing is read or written any more by kernels of any context. */
        bool complete() const { return complete_; }
        ~Absence() { instance().absences_.fetch_sub(1, std::memory_order_seq_cst); }
        Absence(const Absence &) = delete;
        Absence &operator=(const Absence &) = delete;

    private:
        const bool complete_;
    };

    /** How many absences there were: waits for a GPU, nearly all of them. */
    uint64_t absences() const { return absences_begun_.load(std::memory_order_relaxed); }

    /** What they did so far, in the debug output. */
    void log_use();
    void want() { wanted_.store(true, std::memory_order_seq_cst); }
    /** Whether one runs, or will where a thread waits. */
    bool wanted() const { return wanted_.load(std::memory_order_seq_cst); }

private:
    bool possible() const;
    void drop_claims();
    void tend_all(StandbyKernel::Moment moment);
    bool begin_absence(uint64_t patience_ns);

    // An absence counts itself and then asks whether a kernel is wanted; want() says so, and then
    // tend_all() asks whether there is an absence before it launches one. Of two that meet, one at
    // least must see the other (Dekker's pattern), or a kernel would run in an absence that takes
    // itself for complete: so all of these are sequentially consistent.
    std::atomic<bool> wanted_{false};
    std::atomic<unsigned> absences_{0};
    std::atomic<uint64_t> absences_begun_{0};
    std::mutex mutex_;
    StandbyConfig config_;
    bool configured_ = false;
    ByContext<StandbyKernel>
        kernels_;  // with those of contexts that have ended since the last prepare()
    std::map<CUdevice, UniqueFd> claims_;
};

}  // namespace gpushm
