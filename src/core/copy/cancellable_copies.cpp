// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/cancellable_copies.hpp"

#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/stream_calls.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"

#include <algorithm>
#include <utility>

namespace gpushm {

namespace {

// Longer than other processes use the GPU at a time: doc/decisions/copy-cancelling.md.
constexpr uint64_t kPatience = 5'000'000;  // ns
constexpr uint64_t kMaxPatience = 1'000'000'000;

// Of an exchange with the GPU.
constexpr unsigned kMaxTries = 3;

// More would fill the driver's queue of a stream, and the launch would wait.
constexpr size_t kMaxLaunches = 256;
static_assert(kMaxLaunches < kMaxCancellableCopies);

/** Whether `one` is less than `other`; both are counts modulo 2^32. */
bool is_behind(uint32_t one, uint32_t other) {
    return static_cast<int32_t>(other - one) > 0;
}

}  // namespace

// ---------------------------------------------------------------- what it is made of

std::unique_ptr<CancellableCopies> CancellableCopies::make(
    CUcontext context, unsigned long long id, std::shared_ptr<const KernelCode> kernels) {
    std::unique_ptr<CancellableCopies> copies(
        new CancellableCopies(context, id, std::move(kernels)));
    return copies->make_streams() ? std::move(copies) : nullptr;
}

/** The streams have the greatest priority. So all blocks of a copy that has begun come before
 * blocks of other kernels, and the streams have queues of the driver that are not those of the
 * application's streams (CUDA_DEVICE_MAX_CONNECTIONS). */
bool CancellableCopies::make_streams() {
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, context_, id_);
    int least = 0;
    int greatest = 0;
    slot_ = kernels_->take_cancellation();
    const bool made = slot_ && current.result() == CUDA_SUCCESS &&
                      driver->ctx_get_stream_priority_range(&least, &greatest) == CUDA_SUCCESS &&
                      driver->stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING,
                                                          greatest) == CUDA_SUCCESS &&
                      staged_.make_stream(greatest);
    patience_ = kPatience;
    return made;
}

CancellableCopies::~CancellableCopies() {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context_, id_);
    // Both streams use the words of the slot.
    const bool is_over = !context_has_ended(current.result()) && staged_.await() &&
                         (stream_ == nullptr || ask(nullptr) == CUDA_SUCCESS);
    if (current.result() == CUDA_SUCCESS) {
        for (const Launch &launch : launches_) {
            events_.give_back(launch.event);
        }
        staged_.destroy_stream();
        events_.destroy();
        if (stream_ != nullptr) {
            driver->stream_destroy(stream_);
        }
    }
    if (slot_ && is_over) {
        kernels_->give_back_cancellation(*slot_);
    }
}

/** What the event of a launch says, or the stream where the event is null. */
CUresult CancellableCopies::ask(CUevent event) const {
    return query_event(context_, id_, event, stream_);
}

// ---------------------------------------------------------------- the kernel

/** Drops launches whose kernel has ended and whose copy was cancelled. */
void CancellableCopies::drop_passed() {
    while (is_stuck() && ask(launches_.front().event) == CUDA_SUCCESS) {
        events_.give_back(launches_.front().event);
        launches_.pop_front();
    }
}

/** Once in 2^32 copies the numbers that were cancelled are left out. Nothing may be in the stream
 * then. */
bool CancellableCopies::has_room() const {
    return launches_.empty() ||
           (launches_.size() < kMaxLaunches && !is_cancelled(slot_->cancelled, slot_->number + 1));
}

bool CancellableCopies::start(const std::shared_ptr<CopyBatch> &batch, bool through_host) {
    drop_passed();
    if (is_closed() || through_host) {
        staged_.add(batch);
    } else if (!waiting_.empty() || !has_room()) {
        waiting_.push_back(batch);
    } else {
        return launch(batch);
    }
    return true;
}

CancellableCopy CancellableCopies::describe(const BatchedCopy &copy) const {
    CancellableCopy described = {};
    described.destination = device_pointer(copy.destination);
    described.source = device_pointer(copy.source);
    described.length = copy.length;
    described.cancellation = slot_->address;
    described.number = slot_->number + 1;
    if (is_cancelled(slot_->cancelled, described.number)) {
        described.number = slot_->cancelled + 1;
    }
    described.begun_before = slot_->begun;
    described.asks_first = copy.source_may_be_unmapped ? 1 : 0;
    described.blocks =
        static_cast<uint32_t>((copy.length + kCancellableCopyBytes - 1) / kCancellableCopyBytes);
    return described;
}

bool CancellableCopies::launch(const std::shared_ptr<CopyBatch> &batch) {
    const CudaDriver *driver = CudaDriver::get();
    CancellableCopy copy = describe(batch->copies.front());
    void *parameters[] = {&copy};
    const bool is_first = launches_.empty();
    launches_.push_back({batch, nullptr, copy.number,
                         copy.begun_before});  // before it runs: nothing may fail afterwards
    CUevent event = events_.take();
    const OwnCopies own;
    CUresult result = event == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : in_context(context_, id_, [&] {
        return driver->launch_kernel(kernels_->function(Kernel::cancellable_copy), copy.blocks, 1,
                                     1, kCancellableCopyThreads, 1, 1, 0, stream_, parameters,
                                     nullptr);
    });
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "the kernel that copies within a GPU could not be launched (%s)",
                   driver->error_name(result));
        events_.give_back(event);
        launches_.pop_back();
        return false;
    }
    slot_->number = copy.number;
    slot_->begun += copy.blocks;
    result = retry_once([&] {
        return in_context(context_, id_, [&] { return driver->event_record(event, stream_); });
    });
    if (result != CUDA_SUCCESS) {
        events_.give_back(std::exchange(event, nullptr));  // it would say that all has ended
    }
    if (is_first) {
        waits_since_ = monotonic_nanoseconds();
    }
    launches_.back().event = event;
    ++launched_;
    return true;
}

void CancellableCopies::launch_waiting() {
    while (!waiting_.empty() && (is_closed() || has_room())) {
        const std::shared_ptr<CopyBatch> batch = waiting_.front();
        if (is_closed() || !launch(batch)) {
            staged_.add(batch);
        }
        waiting_.pop_front();
    }
}

/** Takes out launches whose kernel has ended. */
void CancellableCopies::pass_launches(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    while (!launches_.empty()) {
        const CUresult result = ask(launches_.front().event);
        if (result == CUDA_ERROR_NOT_READY) {
            return;
        }
        if (result == CUDA_SUCCESS && launches_.front().batch != nullptr &&
            launches_.front().made == Made::in_doubt) {
            if (exchange_ == Exchange::none) {
                begin_exchange(Exchange::resolve);
            }
            return;
        }
        pass(launches_.front(), result, ended);
        events_.give_back(launches_.front().event);
        launches_.pop_front();
        waits_since_ = monotonic_nanoseconds();
        patience_ = kPatience;
    }
}

void CancellableCopies::pass(const Launch &launch, CUresult result,
                             std::vector<std::shared_ptr<CopyBatch>> *ended) {
    if (launch.batch == nullptr) {
        return;
    }
    if (launch.made == Made::no && result == CUDA_SUCCESS) {
        staged_.add(launch.batch);
        --launched_;
        return;
    }
    if (result != CUDA_SUCCESS || launch.made == Made::unknown) {
        log_copy_failure("cuEventQuery", launch.batch->copies.front().bytes(), result);
        launch.batch->fail();
    }
    ended->push_back(launch.batch);
    --launched_;
}

// ---------------------------------------------------------------- cancelling

/** An exchange that fails is tried again until one succeeds: once it was under way, the words that
 * the kernel reads may have changed. */
void CancellableCopies::begin_exchange(Exchange exchange) {
    exchange_ = exchange;
    exchange_number_ = launches_.front().number;
    exchange_tries_ = 0;
    if (exchange == Exchange::cancel) {
        slot_->cancelled = slot_->number;
        for (Launch &launch : launches_) {
            launch.made = Made::in_doubt;
        }
    }
    submit_exchange();
}

void CancellableCopies::submit_exchange() {
    ++exchange_tries_;
    staged_.submit_exchange(*slot_, exchange_ == Exchange::cancel);
}

void CancellableCopies::advance_exchange() {
    if (exchange_ == Exchange::none) {
        return;
    }
    const CUresult result = staged_.query_exchange();
    if (result == CUDA_SUCCESS) {
        const Cancellation state = staged_.answer();
        const Exchange ended = std::exchange(exchange_, Exchange::none);
        if (!as_possible([&] { end_exchange(ended, state); })) {
            retries_cancellation_ = true;  // of what is in doubt still
        }
    } else if (result != CUDA_ERROR_NOT_READY && exchange_tries_ < kMaxTries) {
        submit_exchange();
    } else if (result != CUDA_ERROR_NOT_READY) {
        give_up_exchange();
    }
}

void CancellableCopies::end_exchange(Exchange exchange, const Cancellation &state) {
    if (exchange == Exchange::cancel) {
        return leave_to_staging(state);
    }
    if (launches_.empty() || launches_.front().number != exchange_number_) {
        return;  // the launch has ended meanwhile
    }
    Launch &first = launches_.front();
    if (exchange == Exchange::look) {
        if (first.batch == nullptr || is_behind(first.begun_before, state.begun)) {
            waits_since_ = monotonic_nanoseconds();  // it runs
            patience_ = std::min(2 * patience_, kMaxPatience);
        } else {
            begin_exchange(Exchange::cancel);
        }
    } else {
        first.made = is_behind(state.wanted, first.number) ? Made::no : Made::yes;
    }
}

/** Stages all copies that had not begun when they were cancelled. The others are the first ones. */
void CancellableCopies::leave_to_staging(const Cancellation &state) {
    for (Launch &launch : launches_) {
        if (launch.batch != nullptr && launch.made == Made::in_doubt &&
            !is_behind(launch.begun_before, state.begun)) {
            staged_.add(launch.batch);
            launch.batch = nullptr;
            --launched_;
        }
    }
    GPUSHM_LOG(debug, "a kernel fills the GPU: %zu copies within it go through host memory",
               staged_.count());
}

/** The driver has refused an exchange kMaxTries times. */
void CancellableCopies::give_up_exchange() {
    if (staged_.exchange_is_submitted()) {
        staged_.await();
    }
    if (exchange_ == Exchange::resolve && !launches_.empty() &&
        launches_.front().number == exchange_number_) {
        launches_.front().made = Made::unknown;
    }
    // What is in doubt stays in doubt, and is cancelled again later.
    retries_cancellation_ = retries_cancellation_ || exchange_ == Exchange::cancel;
    exchange_ = Exchange::none;
    waits_since_ = monotonic_nanoseconds();
}

/** Asks the GPU, or cancels, if nothing has begun for a while. */
void CancellableCopies::look_if_late() {
    retries_cancellation_ = retries_cancellation_ && !launches_.empty();
    if (launched_ != 0 && exchange_ == Exchange::none &&
        (retries_cancellation_ || launches_.front().made == Made::yes) &&
        monotonic_nanoseconds() - waits_since_ > patience_) {
        begin_exchange(retries_cancellation_ ? Exchange::cancel : Exchange::look);
        retries_cancellation_ = false;
    }
}

// ---------------------------------------------------------------- progress

void CancellableCopies::advance(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    advance_exchange();
    pass_launches(ended);
    look_if_late();
    launch_waiting();
    staged_.advance(ended);
    if (exchange_ != Exchange::none && idle()) {
        staged_.await();  // nobody may call again
        exchange_ = Exchange::none;
    }
    if (exchange_ == Exchange::none && staged_.count() == 0) {
        staged_.release_block();
    }
}

void CancellableCopies::abandon(const std::function<void(CopyBatch &)> &end) {
    const auto fail = [&end](CopyBatch &batch) {
        batch.fail();
        end(batch);
    };
    for (Launch &launch : launches_) {
        if (launch.batch != nullptr) {
            fail(*std::exchange(launch.batch, nullptr));
        }
    }
    launched_ = 0;
    for (const std::shared_ptr<CopyBatch> &batch : waiting_) {
        fail(*batch);
    }
    waiting_.clear();
    staged_.abandon(fail);
}

}  // namespace gpushm
