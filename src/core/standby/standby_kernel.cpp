// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/standby_kernel.hpp"

#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/memory/page_residency.hpp"
#include "core/standby/gpu_claims.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "core/standby/standby_demand.hpp"

#include <algorithm>

namespace gpushm {
namespace {

// So many small copies, with pauses no longer than that, make the next one likely.
constexpr uint32_t kMinCopies = 4;
constexpr uint64_t kLongestPauseNs = 10'000'000;

// When a launch costs less than it gains: doc/decisions/standby-when-launched.md.
constexpr uint64_t kIdleBeforeLaunchNs = 1000;
constexpr uint64_t kTrafficBeforeLaunchNs = 20'000;

constexpr uint64_t kMaxBeatIntervalNs = 1000;

// After another process was found to have the GPU, the next question comes so much later.
constexpr uint64_t kClaimIntervalNs = 10'000'000;

// A kernel that was killed does not say so. Its stream is asked after so many polls, about 0.1 ms.
constexpr uint32_t kPollsPerQuery = 4096;

}  // namespace

// ---------------------------------------------------------------- code

StandbyKernel::~StandbyKernel() {
    if (queue_.control() == nullptr) {
        return;
    }
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context_, context_id_);
    if (current.result() == CUDA_SUCCESS && stream_ != nullptr) {  // else it went with the context
        driver->stream_destroy(stream_);
    }
    queue_.free();
}

void StandbyKernel::note_copy(bool is_costly) {
    const uint64_t now = monotonic_nanoseconds();
    const uint64_t pause = now - last_copy_.load(std::memory_order_relaxed);
    const bool recent = pause < kLongestPauseNs;
    last_copy_.store(now, std::memory_order_relaxed);
    const uint32_t copies = recent ? copies_.load(std::memory_order_relaxed) + 1 : 1;
    copies_.store(copies, std::memory_order_relaxed);
    if (config_.mode == StandbyConfig::Mode::when_it_pays) {
        if (pause > config_.beat_limit_ns) {  // a kernel has left meanwhile
            pauses_.fetch_add(1, std::memory_order_relaxed);
        }
        // Where waits are not seen, the kernel leaves by itself whenever the process does not poll.
        const uint64_t sent_away = driver_waits_hooked() ? StandbyDemand::instance().absences()
                                                         : launch_.load(std::memory_order_relaxed);
        const uint32_t weight = is_costly && launch_use_.is_likely() ? CopyRuns::kLong : 1;
        runs_.note_copy(sent_away + pauses_.load(std::memory_order_relaxed), weight);
        program_kernels_.note_copy(application_launches(), weight);
    }
    if (is_in_use(now)) {
        StandbyDemand::instance().want();
    }
}

void StandbyKernel::load() {
    Code absent = Code::absent;
    if (!code_.compare_exchange_strong(absent, Code::loading)) {
        return;
    }
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context_);
    const std::shared_ptr<const KernelCode> kernels =
        KernelCodes::instance().load(context_, context_id_);
    block_function_ = kernels ? kernels->function(Kernel::standby) : nullptr;
    cluster_function_ = kernels ? kernels->function(Kernel::standby_cluster) : nullptr;
    const bool loaded = current.result() == CUDA_SUCCESS && block_function_ != nullptr &&
                        queue_.make() && convert_limits(driver) && has_concurrent_access(device_) &&
                        driver->stream_create(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (!loaded) {
        GPUSHM_LOG(debug,
                   "the standby kernel cannot be loaded: small messages are copied by the "
                   "copy engine only");
    }
    Code loading = Code::loading;  // unless it was retired meanwhile
    code_.compare_exchange_strong(loading, loaded ? Code::loaded : Code::unusable);
}

/** Where calls that wait for the GPU are not hooked, the kernel must not hold them up for long. */
bool StandbyKernel::convert_limits(const CudaDriver *driver) {
    constexpr uint32_t kMaxBeatUntoldNs = 2000;
    constexpr uint32_t kMaxLifeUntoldNs = 500'000;
    int kilohertz = 0;
    if (driver->ctx_get_device(&device_) != CUDA_SUCCESS ||
        driver->device_get_attribute(&kilohertz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device_) !=
            CUDA_SUCCESS) {
        return false;
    }
    uint32_t beat_limit_ns = config_.beat_limit_ns;
    life_limit_ns_ = config_.life_limit_ns;
    if (!driver_waits_hooked()) {
        beat_limit_ns = std::min(beat_limit_ns, kMaxBeatUntoldNs);
        life_limit_ns_ = std::min(life_limit_ns_, kMaxLifeUntoldNs);
    }
    beat_limit_cycles_ = static_cast<uint32_t>(uint64_t{beat_limit_ns} *
                                               static_cast<uint64_t>(kilohertz) / 1'000'000);
    beat_interval_ns_ = std::min<uint64_t>(beat_limit_ns / 4, kMaxBeatIntervalNs);
    return true;
}

// ---------------------------------------------------------------- when it runs

bool StandbyKernel::is_in_use(uint64_t now) const {
    const uint32_t enough = config_.mode == StandbyConfig::Mode::whenever_possible ? 1 : kMinCopies;
    return pays() && copies_.load(std::memory_order_relaxed) >= enough &&
           now - last_copy_.load(std::memory_order_relaxed) < kLongestPauseNs;
}

/** Whether the kernel of that launch, or of a later one, has left. */
bool StandbyKernel::has_left(uint32_t launch) const {
    return reached(static_cast<uint32_t>(load_acquire(queue_.control()->left) >> 32), launch);
}

bool StandbyKernel::alive() const {
    return running_.load(std::memory_order_acquire) && is_there();
}

bool StandbyKernel::is_there() const {
    const uint32_t launch = launch_.load(std::memory_order_acquire);
    return launch != 0 && load_acquire(queue_.control()->started) == launch && !has_left() &&
           !killed_.load(std::memory_order_relaxed);
}

/** Not with every poll: the kernel reads the line all the time, and each store makes it wait. */
void StandbyKernel::beat(uint64_t now) {
    if (now - last_beat_.load(std::memory_order_relaxed) >= beat_interval_ns_) {
        last_beat_.store(now, std::memory_order_relaxed);
        __atomic_store_n(&queue_.control()->beat.word, now, __ATOMIC_RELAXED);
    }
}

bool StandbyKernel::tend(Moment moment, bool may_launch, uint64_t now) {
    const Code code = code_.load(std::memory_order_acquire);
    if (code != Code::loaded) {
        return code == Code::unusable ? is_there() : is_in_use(now);
    }
    if (moment != Moment::idle) {
        idle_since_ = 0;
    } else if (idle_since_ == 0) {
        idle_since_ = now;
    }
    const bool in_use = is_in_use(now);
    if (running_.load(std::memory_order_relaxed)) {
        if (in_use) {
            beat(now);
        }
        look_whether_it_left(now);
    } else if (in_use && may_launch && is_good_moment(moment, now) && claim_gpu(now)) {
        launch(now);
    }
    return in_use || running_.load(std::memory_order_relaxed);
}

/** Kernels of other processes would wait until the standby kernel has left. */
bool StandbyKernel::claim_gpu(uint64_t now) {
    if (now < next_claim_) {
        return false;
    }
    const bool disturbs = config_.mode == StandbyConfig::Mode::when_it_pays &&
                          GpuSharing::instance().others(device_) == GpuSharing::Others::kernels;
    const bool claimed = !disturbs && GpuClaims::instance().claim(device_);
    if (!claimed) {
        next_claim_ = now + kClaimIntervalNs;
    }
    return claimed;
}

/** A launch delays whatever comes meanwhile. So it is made in a wait, or, if traffic has none,
 * after a while. */
bool StandbyKernel::is_good_moment(Moment moment, uint64_t now) const {
    switch (moment) {
        case Moment::idle:
            return now - idle_since_ >= kIdleBeforeLaunchNs;
        case Moment::busy:
            return now - left_at_ >= kTrafficBeforeLaunchNs;
        case Moment::costly:
            return true;
    }
    return false;
}

void StandbyKernel::dismiss() {
    if (code_.load(std::memory_order_acquire) == Code::loaded) {
        __atomic_store_n(&queue_.control()->beat.argument, launch_.load(std::memory_order_relaxed),
                         __ATOMIC_RELAXED);
    }
}

void StandbyKernel::retire() {
    dismiss();
    code_.store(Code::unusable, std::memory_order_relaxed);
    running_.store(false, std::memory_order_release);
}

void StandbyKernel::look_whether_it_left(uint64_t now) {
    if (!has_left()) {
        return;
    }
    const std::lock_guard<std::mutex> lock(queue_.mutex());
    const bool served_all =
        static_cast<uint32_t>(load_acquire(queue_.control()->left)) == queue_.next();
    if (!served_all && queue_.has_waiting()) {
        return;  // mark_all_served() of a launch would be wrong
    }
    left_at_ = now;
    launch_use_.note_left(queue_.count_given() != given_before_);
    running_.store(false, std::memory_order_release);
}

void StandbyKernel::launch(uint64_t now) {
    const CudaDriver *driver = CudaDriver::get();
    const std::lock_guard<std::mutex> lock(queue_.mutex());
    if (!driver->context_is_alive(context_, context_id_)) {
        code_.store(Code::unusable, std::memory_order_relaxed);
        return;
    }
    uint32_t number = launch_.load(std::memory_order_relaxed) + 1;
    number += number == 0;
    queue_.mark_all_served();
    beat(now);
    StandbyParameters parameters = {queue_.control(), number, queue_.next(), beat_limit_cycles_,
                                    life_limit_ns_};
    launch_.store(number, std::memory_order_release);
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context_);
    const CUresult result =
        current.result() != CUDA_SUCCESS ? current.result() : launch_kernel(&parameters);
    if (result != CUDA_SUCCESS) {
        give_up("its launch failed", result);
        return;
    }
    ++launches_;
    given_before_ = queue_.count_given();
    launched_.store(number, std::memory_order_release);
    running_.store(true, std::memory_order_release);
}

/** Launches a cluster, or else a block: a part of a GPU (MPS, MIG) may have no room for a cluster.
 */
CUresult StandbyKernel::launch_kernel(StandbyParameters *parameters) {
    const CudaDriver *driver = CudaDriver::get();
    const OwnCopies own;
    void *arguments[] = {parameters};
    if (is_cluster()) {
        const CUresult result =
            driver->launch_kernel(cluster_function_, kStandbyClusterBlocks, 1, 1,
                                  kStandbyClusterThreads, 1, 1, 0, stream_, arguments, nullptr);
        if (result == CUDA_SUCCESS) {
            return result;
        }
        GPUSHM_LOG(debug,
                   "the standby kernel is one block from now on: as a cluster it could not be "
                   "launched (%s)",
                   driver->error_name(result));
        cluster_function_ = nullptr;
    }
    return driver->launch_kernel(block_function_, 1, 1, 1, kStandbyThreads, 1, 1, 0, stream_,
                                 arguments, nullptr);
}

/** It is not used any more. */
void StandbyKernel::give_up(const char *why, CUresult result) {
    GPUSHM_LOG(debug,
               "the standby kernel is not used any more, small messages are copied by the copy "
               "engine: %s (%s)",
               why, CudaDriver::get()->error_name(result));
    retire();
}

// ---------------------------------------------------------------- commands

bool StandbyKernel::give(const StandbyJob &copy, StandbyTicket *ticket) {
    if (!pays() || !alive() || !takes(copy.rows, copy.length)) {
        return false;
    }
    const std::lock_guard<std::mutex> lock(queue_.mutex());
    return alive() && queue_.write(copy, ticket);
}

StandbyKernel::State StandbyKernel::state(StandbyTicket *ticket) {
    State state = State::waiting;
    if (queue_.has_come(ticket)) {
        state = State::served;
    } else if (has_left() || (++polls_ % kPollsPerQuery == 0 && look_whether_killed())) {
        // It says what it served before it leaves.
        state = queue_.has_come(ticket) ? State::served : State::not_served;
    } else {
        beat(monotonic_nanoseconds());
    }
    if (state == State::not_served) {
        all_not_served_.fetch_add(1, std::memory_order_relaxed);
    }
    if (state != State::waiting) {
        queue_.end_command();
    }
    return state;
}

StandbyKernel::State StandbyKernel::await(StandbyTicket ticket) {
    State now = State::waiting;
    while (now == State::waiting) {
        now = state(&ticket);
    }
    return now;
}

void StandbyKernel::log_use() {
    const std::lock_guard<std::mutex> lock(queue_.mutex());
    if (launches_ != 0) {
        GPUSHM_LOG(debug,
                   "the standby kernel was launched %llu times, took %llu copies and left %llu "
                   "of them to the copy engine",
                   static_cast<unsigned long long>(launches_),
                   static_cast<unsigned long long>(queue_.count_given()),
                   static_cast<unsigned long long>(all_not_served_.load()));
    }
}

/** The driver has failed, but the kernel may live, and what it copies later would meet memory that
 * has another use. Behind this call it does not run any more, for its life is short. */
void StandbyKernel::await_end() {
    const CudaDriver *driver = CudaDriver::get();
    dismiss();
    retry_once([&] { return driver->stream_synchronize(stream_) == CUDA_SUCCESS || has_left(); });
}

/** Meanwhile another thread may launch the next kernel, of which the answer says nothing. */
bool StandbyKernel::look_whether_killed() {
    const CudaDriver *driver = CudaDriver::get();
    const uint32_t asked_for = launched_.load(std::memory_order_acquire);
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context_, context_id_);
    const CUresult result = current.result() == CUDA_ERROR_CONTEXT_IS_DESTROYED
                                ? current.result()
                                : driver->stream_query(stream_);
    if (result == CUDA_ERROR_NOT_READY || (result == CUDA_SUCCESS && has_left(asked_for))) {
        return false;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        await_end();
    }
    killed_.store(true, std::memory_order_relaxed);
    give_up("it was killed, or the driver failed", result);
    return true;
}

}  // namespace gpushm
