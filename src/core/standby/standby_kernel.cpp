// SPDX-License-Identifier: BSD-3-Clause
#include "core/standby/standby_kernel.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/page_residency.hpp"
#include "core/standby/standby_unit.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace gpushm {
namespace {

// So many small copies, with pauses no longer than that, make the next one likely.
constexpr uint32_t kMinCopies = 4;
constexpr uint64_t kLongestPauseNs = StandbyWorth::kLongPauseNs;

// A launch takes a CPU 3 to 4 us: less than the rest of a wait that has lasted so long already,
// usually.
constexpr uint64_t kIdleBeforeLaunchNs = 1000;
constexpr uint64_t kTrafficBeforeLaunchNs = 20'000;

constexpr uint64_t kMaxBeatIntervalNs = 1000;

// So long after another process was found to have the GPU.
constexpr uint64_t kClaimIntervalNs = 10'000'000;

// A kernel that was killed does not say so; its stream is asked after so many polls (0.1 ms).
constexpr uint32_t kPollsPerQuery = 4096;

// The kernel tells of all that it found at once when it has copied all of it; so long the process
// waits that copies it further. Windows of 512 KiB of managed memory take 14.2 us each (14.1..14.3)
// where it tells of every 2 MiB, and 14.7 (14.3..14.9) without a limit; some 1 us more where it
// tells of every 1 MiB, 3 of each copy (two H200).
constexpr size_t kMaxBatchBytes = 2u << 20;

template <typename Word>
Word load_acquire(const Word &word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

/** PCIe reads and writes of x86 processors are meant (StandbyUnit). */
constexpr bool processor_stores_units_whole() {
#ifdef __x86_64__
    return true;
#else
    return false;
#endif
}

// This thread is within tend_all().
thread_local bool tending = false;

/** Whether the numbers, which wrap, are in this order. */
bool reached(uint32_t unit, uint32_t end) {
    return static_cast<int32_t>(unit - end) >= 0;
}

/** Worth it up to some hundred bytes: more units the CPU awaits no sooner than the end of a plain
 * copy. */
bool can_be_answer(const StandbyJob &copy) {
    const auto bits = reinterpret_cast<uintptr_t>(copy.source) | copy.length;
    return copy.cpu_may_write && copy.length <= kStandbyMostAnswer && bits % sizeof(uint32_t) == 0;
}

}  // namespace

// ---------------------------------------------------------------- the process's kernels

StandbyKernels &StandbyKernels::instance() {
    // Never destroyed: at process exit the driver may be gone before us.
    static StandbyKernels *kernels = new StandbyKernels;
    // A forked child has no kernels, nor the thread that may have had the mutex: there it is as
    // new.
    [[maybe_unused]] static const int watched = pthread_atfork(nullptr, nullptr, [] {
        kernels->drop_claims();
        new (kernels) StandbyKernels;
    });
    return *kernels;
}

// When the plugin is loaded: a child that is forked within the first call would wait for its end.
[[maybe_unused]] static const StandbyKernels &made_at_load = StandbyKernels::instance();

void StandbyKernels::configure(const StandbyConfig &config) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!configured_) {
        configured_ = true;
        config_ = config;
    }
}

bool StandbyKernels::possible() const {
    return config_.mode != StandbyConfig::Mode::off && KernelCodes::possible() &&
           processor_stores_units_whole() && !launches_are_synchronous();
}

void StandbyKernels::prepare(CUcontext context) {
    std::shared_ptr<StandbyKernel> kernel;
    ByContext<StandbyKernel>
        ended;  // goes without the mutex: their driver calls wait for an Absence
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!possible()) {
            return;
        }
        ended = take_ended(kernels_);
        const unsigned long long id = CudaDriver::get()->context_id(context);
        if (kernels_.find({context, id}) != kernels_.end()) {
            return;
        }
        kernel = std::make_shared<StandbyKernel>(context, id, config_);
        kernels_[{context, id}] = kernel;
    }
    kernel->load();
}

std::shared_ptr<StandbyKernel> StandbyKernels::find(CUcontext context, unsigned long long id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = kernels_.find({context, id});
    return found != kernels_.end() ? found->second : nullptr;
}

void StandbyKernels::tend_all(StandbyKernel::Moment moment) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) {
        return;  // another thread does it
    }
    const uint64_t now = monotonic_nanoseconds();
    const bool may_launch = absences_.load(std::memory_order_seq_cst) == 0;  // see wanted_
    bool wanted = false;
    tending = true;
    for (const auto &[key, kernel] : kernels_) {
        (void)key;
        wanted |= kernel->tend(moment, may_launch, now);
    }
    tending = false;
    wanted_.store(wanted, std::memory_order_seq_cst);
}

void StandbyKernels::leave_to_peer(CUcontext context) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &[key, kernel] : kernels_) {
        if (key.first == context) {
            if (kernel->is_loaded()) {
                claims_.erase(kernel->device());
            }
            kernel->retire();
            want();  // until it has left
        }
    }
}

/** In a forked child, which would keep the GPUs from all others when the parent has ended. */
void StandbyKernels::drop_claims() {
    if (mutex_.try_lock()) {
        for (auto &[device, claim] : claims_) {
            claim = UniqueFd();  // not erased: see Background::begin_anew()
        }
    }
}

/** Processes of all users count: kernels of two users take turns by time slices, too. Any process
 * of the network namespace can bind the name, and so keep the kernel off, whether it uses the GPU
 * or not: small messages then take 3 us longer, where a second kernel would cost all of them up to
 * 2 ms. So a claim is believed whoever has it. */
bool StandbyKernels::claim(CUdevice device) {
    UniqueFd &claim = claims_[device];
    if (!claim) {
        claim = bind_abstract("standby", {device_identity(device), 0});
        if (!claim) {
            GPUSHM_LOG_ONCE(debug,
                            "another process has the standby kernel of a GPU, or no socket can be "
                            "made (%s): the copy engine copies small messages there; ss -xap shows "
                            "which process has @gpushm-standby-...",
                            strerror(errno));
        }
    }
    return bool(claim);
}

/** Whether they have left. Within tend_all(), which launches, it is a tool's callback that calls
 * the driver: this thread has the mutex. */
bool StandbyKernels::begin_absence(uint64_t patience_ns) {
    absences_.fetch_add(1, std::memory_order_seq_cst);  // see wanted_
    absences_begun_.fetch_add(1, std::memory_order_relaxed);
    if (!wanted_.load(std::memory_order_seq_cst)) {
        return true;
    }
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (!tending) {
        lock.lock();
    }
    for (const auto &[key, kernel] : kernels_) {
        (void)key;
        kernel->dismiss();
    }
    // To find a kernel that is about to leave costs some calls 20 us and more.
    const uint64_t end = monotonic_nanoseconds() + patience_ns;
    bool complete = true;
    for (const auto &[key, kernel] : kernels_) {
        (void)key;
        while (kernel->is_there() && monotonic_nanoseconds() < end) {
        }
        if (kernel->is_there()) {
            kernel->look_whether_killed();
        }
        complete &= !kernel->is_there();
    }
    return complete;
}

void StandbyKernels::log_use() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &[key, kernel] : kernels_) {
        (void)key;
        kernel->log_use();
    }
}

// ---------------------------------------------------------------- code

StandbyKernel::~StandbyKernel() {
    if (control_ == nullptr) {
        return;
    }
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context_, context_id_);
    if (current.result() == CUDA_SUCCESS && stream_ != nullptr) {  // else it went with the context
        driver->stream_destroy(stream_);
    }
    driver->mem_host_unregister(control_);  // as in SegmentTable::unmap
    munmap(control_, sizeof(*control_));
}

void StandbyKernel::note_copy() {
    const uint64_t now = monotonic_nanoseconds();
    const bool recent = now - last_copy_.load(std::memory_order_relaxed) < kLongestPauseNs;
    last_copy_.store(now, std::memory_order_relaxed);
    const uint32_t copies = recent ? copies_.load(std::memory_order_relaxed) + 1 : 1;
    copies_.store(copies, std::memory_order_relaxed);
    if (config_.mode == StandbyConfig::Mode::when_it_pays) {
        weigh(now);
    }
    if (is_in_use(now)) {
        StandbyKernels::instance().want();
    }
}

/** A copy during which another thread does this is not counted. */
void StandbyKernel::weigh(uint64_t now) {
    if (weighing_.test_and_set(std::memory_order_acquire)) {
        return;
    }
    const bool was_trying = worth_.is_trying();
    worth_.note_copy(now, StandbyKernels::instance().absences());
    const bool pays = worth_.wants_kernel();
    if (was_trying && !worth_.is_trying()) {
        GPUSHM_LOG(debug,
                   "%s standby kernel from now on: of a step each small copy took %.1f us with it "
                   "lately, %.1f without",
                   pays ? "the" : "no", worth_.compared_ns(true) / 1000,
                   worth_.compared_ns(false) / 1000);
    }
    if (pays != pays_.load(std::memory_order_relaxed)) {
        pays_.store(pays, std::memory_order_relaxed);
        if (!pays) {
            dismiss();
        }
    }
    weighing_.clear(std::memory_order_release);
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
                        make_control(driver) && convert_limits(driver) &&
                        has_concurrent_access(device_) &&
                        driver->stream_create(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (!loaded) {
        GPUSHM_LOG(debug,
                   "the standby kernel cannot be loaded: small messages are copied by the "
                   "copy engine only");
    }
    Code loading = Code::loading;  // unless it was retired meanwhile
    code_.compare_exchange_strong(loading, loaded ? Code::loaded : Code::unusable);
}

/** What both sides share, where the GPU finds it at the address that it has here. */
bool StandbyKernel::make_control(const CudaDriver *driver) {
    void *memory = mmap(nullptr, sizeof(StandbyControl), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    // To a forked child no kernel has ever started; our pages, which the GPU knows, stay ours
    // (madvise(2)).
    if (madvise(memory, sizeof(StandbyControl), MADV_WIPEONFORK) != 0) {
        munmap(memory, sizeof(StandbyControl));
        return false;
    }
    CUdeviceptr address = 0;
    const bool registered =
        driver->mem_host_register(memory, sizeof(StandbyControl),
                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
            CUDA_SUCCESS &&
        driver->mem_host_get_device_pointer(&address, memory, 0) == CUDA_SUCCESS;
    if (!registered || address != reinterpret_cast<CUdeviceptr>(memory)) {
        driver->mem_host_unregister(memory);
        munmap(memory, sizeof(StandbyControl));
        return false;
    }
    control_ = static_cast<StandbyControl *>(memory);
    return true;
}

/** Where nobody tells of calls that wait for the GPU, the kernel must not hold them up for long. */
bool StandbyKernel::convert_limits(const CudaDriver *driver) {
    constexpr uint32_t kMaxBeatUntoldNs = 2000;
    int kilohertz = 0;
    if (driver->ctx_get_device(&device_) != CUDA_SUCCESS ||
        driver->device_get_attribute(&kilohertz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device_) !=
            CUDA_SUCCESS) {
        return false;
    }
    const uint32_t beat_limit_ns = driver_waits_hooked()
                                       ? config_.beat_limit_ns
                                       : std::min(config_.beat_limit_ns, kMaxBeatUntoldNs);
    beat_limit_cycles_ = static_cast<uint32_t>(uint64_t{beat_limit_ns} *
                                               static_cast<uint64_t>(kilohertz) / 1'000'000);
    beat_interval_ns_ = std::min<uint64_t>(beat_limit_ns / 4, kMaxBeatIntervalNs);
    return true;
}

// ---------------------------------------------------------------- when it runs

bool StandbyKernel::is_in_use(uint64_t now) const {
    const uint32_t enough = config_.mode == StandbyConfig::Mode::whenever_possible ? 1 : kMinCopies;
    return pays_.load(std::memory_order_relaxed) &&
           copies_.load(std::memory_order_relaxed) >= enough &&
           now - last_copy_.load(std::memory_order_relaxed) < kLongestPauseNs;
}

/** That launch, or a later one. */
bool StandbyKernel::has_left(uint32_t launch) const {
    return reached(static_cast<uint32_t>(load_acquire(control_->left) >> 32), launch);
}

bool StandbyKernel::alive() const {
    return running_.load(std::memory_order_acquire) && is_there();
}

bool StandbyKernel::is_there() const {
    const uint32_t launch = launch_.load(std::memory_order_acquire);
    return launch != 0 && load_acquire(control_->started) == launch && !has_left() &&
           !killed_.load(std::memory_order_relaxed);
}

/** Not with every poll: the kernel reads the line all the time, and waits for it after each store.
 */
void StandbyKernel::beat(uint64_t now) {
    if (now - last_beat_.load(std::memory_order_relaxed) >= beat_interval_ns_) {
        last_beat_.store(now, std::memory_order_relaxed);
        __atomic_store_n(&control_->beat.word, now, __ATOMIC_RELAXED);
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

bool StandbyKernel::claim_gpu(uint64_t now) {
    if (now < next_claim_) {
        return false;
    }
    const bool claimed = StandbyKernels::instance().claim(device_);
    if (!claimed) {
        next_claim_ = now + kClaimIntervalNs;
    }
    return claimed;
}

/** A launch delays whatever comes meanwhile: so in a wait, or at last in traffic without one. */
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
        __atomic_store_n(&control_->beat.argument, launch_.load(std::memory_order_relaxed),
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
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool served_all = static_cast<uint32_t>(load_acquire(control_->left)) == next_;
    if (!served_all && waiting_.load(std::memory_order_acquire) != 0) {
        return;  // a launch would say that all was served
    }
    left_at_ = now;
    running_.store(false, std::memory_order_release);
}

void StandbyKernel::launch(uint64_t now) {
    const CudaDriver *driver = CudaDriver::get();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!driver->context_is_alive(context_, context_id_)) {
        code_.store(Code::unusable, std::memory_order_relaxed);
        return;
    }
    uint32_t number = launch_.load(std::memory_order_relaxed) + 1;
    number += number == 0;
    __atomic_store_n(&control_->done, next_, __ATOMIC_RELAXED);
    beat(now);
    StandbyParameters parameters = {control_, number, next_, beat_limit_cycles_,
                                    config_.life_limit_ns};
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
    launched_.store(number, std::memory_order_release);
    running_.store(true, std::memory_order_release);
}

/** As a cluster, or else as a block: a part of a GPU (MPS, MIG) may have no room for the former. */
CUresult StandbyKernel::launch_kernel(StandbyParameters *parameters) {
    const CudaDriver *driver = CudaDriver::get();
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
    if (!pays_.load(std::memory_order_relaxed) || !alive() || copy.length > kStandbyLength) {
        return false;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool answers = can_be_answer(copy) && waiting_.load(std::memory_order_acquire) == 0;
    const bool in_units = copy.cpu_may_read && copy.length <= kStandbyMostInline && !answers;
    const uint32_t argument = static_cast<uint32_t>(copy.length) | (in_units ? kStandbyInline : 0) |
                              (answers ? kStandbyAnswer : 0) |
                              (!in_units && !answers && reads_ahead(copy) ? kStandbyReadAhead : 0) |
                              (copy.to_own_gpu ? kStandbyOwnGpu : 0);
    if (!alive() ||
        next_ + standby_units(argument) - load_acquire(control_->done) > kStandbyUnits) {
        return false;
    }
    *ticket = {};
    if (answers) {
        ticket->answer = next_answer();
        ticket->answer_length = copy.length;
        ticket->answer_to = copy.destination;
    }
    write_command(copy, argument | (ends_batch(copy) ? kStandbyEndsBatch : 0), ticket->answer);
    ticket->end = next_;
    ++all_given_;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

/** Whether the kernel tells of what goes through the host, so far. */
bool StandbyKernel::ends_batch(const StandbyJob &copy) {
    if (copy.cpu_may_read || copy.cpu_may_write) {
        batch_bytes_ += copy.length;
    }
    const bool ends = batch_bytes_ >= kMaxBatchBytes;
    batch_bytes_ = ends ? 0 : batch_bytes_;
    return ends;
}

/** What rides in the next command the kernel need not read. */
bool StandbyKernel::reads_ahead(const StandbyJob &copy) const {
    return copy.next.message != 0 && copy.next.length > kStandbyMostInline &&
           copy.next.length <= kStandbyMostAhead && next_ != 0;
}

/** The number of the command by which the source was read ahead; 0: none. */
uint32_t StandbyKernel::reader_of(const StandbyJob &copy) const {
    const bool is_read = copy.message != 0 && copy.message == read_ahead_.message &&
                         copy.source == read_ahead_.begin && copy.length <= read_ahead_.length;
    return is_read ? reader_ : 0;
}

void StandbyKernel::write_command(const StandbyJob &copy, uint32_t argument, uint32_t answer) {
    const uint32_t number = next_;
    const uint64_t destination =
        (argument & kStandbyAnswer) != 0 ? answer : reinterpret_cast<uint64_t>(copy.destination);
    write_unit({destination, argument, 1});
    if ((argument & kStandbyInline) != 0) {
        write_payload(static_cast<const unsigned char *>(copy.source), copy.length);
    } else {
        write_unit({reinterpret_cast<uint64_t>(copy.source), reader_of(copy), 0});
    }
    if ((argument & kStandbyReadAhead) != 0) {
        write_unit({reinterpret_cast<uint64_t>(copy.next.begin),
                    static_cast<uint32_t>(copy.next.length), 0});
        read_ahead_ = copy.next;
        reader_ = number;
    }
}

/** None is under way. */
uint32_t StandbyKernel::next_answer() {
    if (++answers_ == 0) {
        memset(control_->answer, 0, sizeof(control_->answer));
        ++answers_;
    }
    return answers_;
}

void StandbyKernel::write_unit(StandbyUnit unit) {
    unit.tag |= next_ << 1;
    store_unit(control_->units[next_ % kStandbyUnits], unit);
    ++next_;
}

void StandbyKernel::write_payload(const unsigned char *payload, size_t length) {
    for (size_t offset = 0; offset < length; offset += kStandbyUnitPayload) {
        unsigned char bytes[kStandbyUnitPayload] = {};
        memcpy(bytes, payload + offset, std::min<size_t>(sizeof(bytes), length - offset));
        StandbyUnit unit = {};
        memcpy(&unit.word, bytes, sizeof(unit.word));
        memcpy(&unit.argument, bytes + sizeof(unit.word), sizeof(unit.argument));
        write_unit(unit);
    }
}

/** Whether all of it is there. Takes what has come of an answer. */
bool StandbyKernel::has_come(StandbyTicket *ticket) const {
    if (ticket->answer_length == 0) {
        return reached(load_acquire(control_->done), ticket->end);
    }
    size_t offset = ticket->answer_units * size_t{kStandbyUnitPayload};
    while (offset < ticket->answer_length) {
        const StandbyUnit unit = load_unit(control_->answer[ticket->answer_units]);
        if (unit.tag != ticket->answer) {
            return false;
        }
        memcpy(static_cast<unsigned char *>(ticket->answer_to) + offset, &unit,
               std::min<size_t>(kStandbyUnitPayload, ticket->answer_length - offset));
        offset += kStandbyUnitPayload;
        ++ticket->answer_units;
    }
    return true;
}

StandbyKernel::State StandbyKernel::state(StandbyTicket *ticket) {
    State state = State::waiting;
    if (has_come(ticket)) {
        state = State::served;
    } else if (has_left() || (++polls_ % kPollsPerQuery == 0 && look_whether_killed())) {
        // What it served it said before it left.
        state = has_come(ticket) ? State::served : State::not_served;
    } else {
        beat(monotonic_nanoseconds());
    }
    if (state == State::not_served) {
        all_not_served_.fetch_add(1, std::memory_order_relaxed);
    }
    if (state != State::waiting) {
        waiting_.fetch_sub(1, std::memory_order_release);
    }
    return state;
}

void StandbyKernel::abandon(const StandbyTicket & /*ticket*/) {
    waiting_.fetch_sub(1, std::memory_order_release);
}

void StandbyKernel::log_use() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (launches_ != 0) {
        GPUSHM_LOG(debug,
                   "the standby kernel was launched %llu times, took %llu copies and left %llu "
                   "of them to the copy engine",
                   static_cast<unsigned long long>(launches_),
                   static_cast<unsigned long long>(all_given_),
                   static_cast<unsigned long long>(all_not_served_.load()));
    }
}

/** It may live though the driver failed, and what it copies later would meet memory that has
 * another use: after this it does not run any more, for its life is short. A driver that fails is
 * asked a second time. */
void StandbyKernel::await_end() {
    const CudaDriver *driver = CudaDriver::get();
    dismiss();
    if (driver->stream_synchronize(stream_) != CUDA_SUCCESS && !has_left()) {
        driver->stream_synchronize(stream_);
    }
}

/** Meanwhile another thread may launch the next one, of which the answer says nothing. */
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
