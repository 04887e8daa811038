// SPDX-License-Identifier: BSD-3-Clause
// Copies within a GPU that do not wait for ever for a kernel of the application that fills it.
#include "core/copy/cancellable_copies.hpp"

#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/base/no_throw.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/pinning/segment_table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {

namespace {

// Longer than what other processes on the GPU take of it at a time (2 ms, driver 580).
constexpr uint64_t kPatience = 5'000'000;  // ns
constexpr uint64_t kMaxPatience = 1'000'000'000;

// Of an exchange with the GPU.
constexpr unsigned kMaxTries = 3;

// More would fill the driver's queue of a stream, which then waits.
constexpr size_t kMaxLaunches = 256;
static_assert(kMaxLaunches < kMaxCancellableCopies);

// Of a block of PinnedBufferPool: what is exchanged with the GPU lies before the bytes of copies.
constexpr size_t kExchangeBytes = 4096;
constexpr size_t kPieceBytes = PinnedBufferPool::kBlockBytes - kExchangeBytes;

/** What may be a passing failure is tried again. */
template <typename Function>
CUresult succeeds_in_two(Function function) {
    const CUresult result = function();
    return result == CUDA_SUCCESS ? result : function();
}

/** Whether of two counts modulo 2^32 `one` is less than `other`. */
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

/** They have priority: of a copy that has begun all blocks come before those of other kernels; and
 * streams of different priorities have different queues of the driver
 * (CUDA_DEVICE_MAX_CONNECTIONS). */
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
                      driver->stream_create_with_priority(&staging_stream_, CU_STREAM_NON_BLOCKING,
                                                          greatest) == CUDA_SUCCESS;
    patience_ = kPatience;
    return made;
}

CancellableCopies::~CancellableCopies() {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context_, id_);
    // Both use the words of the slot.
    const bool is_over = !context_has_ended(current.result()) &&
                         (staging_stream_ == nullptr || await_staging_stream()) &&
                         (stream_ == nullptr || query(nullptr, stream_) == CUDA_SUCCESS);
    if (current.result() == CUDA_SUCCESS) {
        give_back(piece_event_);
        give_back(exchange_event_);
        for (const Launch &launch : launches_) {
            give_back(launch.event);
        }
        for (CUevent event : free_events_) {
            driver->event_destroy(event);
        }
        for (CUstream stream : {stream_, staging_stream_}) {
            if (stream != nullptr) {
                driver->stream_destroy(stream);
            }
        }
    }
    if (slot_ && is_over) {
        kernels_->give_back_cancellation(*slot_);
    }
}

CUevent CancellableCopies::take_event() {
    CUevent event = nullptr;
    if (!free_events_.empty()) {
        event = free_events_.back();
        free_events_.pop_back();
        return event;
    }
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, context_, id_);
    const bool made = current.result() == CUDA_SUCCESS &&
                      succeeds_in_two([&] {
                          return driver->event_create(&event, CU_EVENT_DISABLE_TIMING);
                      }) == CUDA_SUCCESS;
    return made ? event : nullptr;
}

void CancellableCopies::give_back(CUevent event) {
    if (event != nullptr) {
        as_possible([&] { free_events_.push_back(event); });
    }
}

/** Page-locked if the driver can; null: there is no memory. */
unsigned char *CancellableCopies::block() {
    if (!block_) {
        block_.emplace(PinnedBufferPool::kBlockBytes);
        if (block_->address() != nullptr) {
            SegmentTable::instance().ensure_pinned(block_->address(), context_, id_);
        }
    }
    return static_cast<unsigned char *>(block_->address());
}

/** Until nothing there uses the block. False: the driver does not tell that, and nobody gets the
 * block any more. */
bool CancellableCopies::await_staging_stream() {
    const CUresult result = wait_for_stream(context_, id_, staging_stream_);
    if (result == CUDA_SUCCESS || context_has_ended(result)) {
        return true;
    }
    if (block_) {
        block_->leave();
        block_.reset();
    }
    exchange_submitted_ = false;  // its answer would be there
    return false;
}

/** What an event says of what lies before it in a stream, or the stream where there is none or it
 * cannot be asked. */
CUresult CancellableCopies::query(CUevent event, CUstream stream) const {
    const CudaDriver *driver = CudaDriver::get();
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (event != nullptr) {
        result = in_context(context_, id_, [&] { return driver->event_query(event); });
    }
    for (int tries = 0; tries < 2 && result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
         ++tries) {
        result = in_context(context_, id_, [&] { return driver->stream_query(stream); });
    }
    return result;
}

// ---------------------------------------------------------------- the kernel

/** Kernels that ended without a copy. */
void CancellableCopies::drop_passed() {
    while (is_stuck() && query(launches_.front().event, stream_) == CUDA_SUCCESS) {
        give_back(launches_.front().event);
        launches_.pop_front();
    }
}

/** Numbers that were cancelled are passed over once in 2^32 copies, with nothing before that in the
 * stream. */
bool CancellableCopies::has_room() const {
    return launches_.empty() ||
           (launches_.size() < kMaxLaunches && !is_cancelled(slot_->cancelled, slot_->number + 1));
}

bool CancellableCopies::start(const std::shared_ptr<CopyBatch> &batch) {
    drop_passed();
    if (is_closed()) {
        staged_.push_back(batch);
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
                         copy.begun_before});  // when it runs nothing can fail any more
    CUevent event = take_event();
    CUresult result = event == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : in_context(context_, id_, [&] {
        return driver->launch_kernel(kernels_->function(Kernel::cancellable_copy), copy.blocks, 1,
                                     1, kCancellableCopyThreads, 1, 1, 0, stream_, parameters,
                                     nullptr);
    });
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "the kernel that copies within a GPU could not be launched (%s)",
                   driver->error_name(result));
        give_back(event);
        launches_.pop_back();
        return false;
    }
    slot_->number = copy.number;
    slot_->begun += copy.blocks;
    result = succeeds_in_two([&] {
        return in_context(context_, id_, [&] { return driver->event_record(event, stream_); });
    });
    if (result != CUDA_SUCCESS) {
        give_back(std::exchange(event, nullptr));  // one that was not recorded would have passed
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
            staged_.push_back(batch);
        }
        waiting_.pop_front();
    }
}

/** What of the kernels has ended. */
void CancellableCopies::pass_launches(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    while (!launches_.empty()) {
        const CUresult result = query(launches_.front().event, stream_);
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
        give_back(launches_.front().event);
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
        staged_.push_back(launch.batch);
        --launched_;
        return;
    }
    if (result != CUDA_SUCCESS || launch.made == Made::unknown) {
        log_copy_failure("cuEventQuery", launch.batch->copies.front().length, result);
        launch.batch->fail();
    }
    ended->push_back(launch.batch);
    --launched_;
}

// ---------------------------------------------------------------- cancelling

/** Until one succeeds: from when on it is under way the words that the kernel reads may have
 * changed. */
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

/** Writes, if that is asked for, and reads the words: 20 us, up to 4 ms beside a kernel that fills
 * the GPU (H200, driver 580). */
void CancellableCopies::submit_exchange() {
    const CudaDriver *driver = CudaDriver::get();
    unsigned char *const own = block();
    ++exchange_tries_;
    exchange_event_ = exchange_event_ != nullptr ? exchange_event_ : take_event();
    exchange_submitted_ = false;
    if (own == nullptr || exchange_event_ == nullptr) {
        return;
    }
    unsigned char *const written = own + sizeof(Cancellation);
    std::memcpy(written, &slot_->cancelled, sizeof(slot_->cancelled));
    CUresult result = CUDA_SUCCESS;
    if (exchange_ == Exchange::cancel) {
        result = in_context(context_, id_, [&] {
            return driver->memcpy_async(slot_->address + offsetof(Cancellation, cancelled),
                                        device_pointer(written), sizeof(slot_->cancelled),
                                        staging_stream_);
        });
    }
    if (result == CUDA_SUCCESS) {
        result = in_context(context_, id_, [&] {
            const CUresult read = driver->memcpy_async(device_pointer(own), slot_->address,
                                                       sizeof(Cancellation), staging_stream_);
            return read == CUDA_SUCCESS ? driver->event_record(exchange_event_, staging_stream_)
                                        : read;
        });
    }
    exchange_submitted_ = result == CUDA_SUCCESS;
    if (!exchange_submitted_) {
        await_staging_stream();
    }
}

void CancellableCopies::advance_exchange() {
    if (exchange_ == Exchange::none) {
        return;
    }
    const CUresult result =
        exchange_submitted_ ? query(exchange_event_, staging_stream_) : CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS) {
        Cancellation state;
        std::memcpy(&state, block(), sizeof(state));
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
        return;  // it has ended meanwhile
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

/** All copies that had not begun when they were cancelled. The others are the first ones. */
void CancellableCopies::leave_to_staging(const Cancellation &state) {
    for (Launch &launch : launches_) {
        if (launch.batch != nullptr && launch.made == Made::in_doubt &&
            !is_behind(launch.begun_before, state.begun)) {
            staged_.push_back(launch.batch);
            launch.batch = nullptr;
            --launched_;
        }
    }
    GPUSHM_LOG(debug, "a kernel fills the GPU: %zu copies within it go through host memory",
               staged_.size());
}

/** The driver refuses what it should not. */
void CancellableCopies::give_up_exchange() {
    if (exchange_submitted_) {
        await_staging_stream();
    }
    if (exchange_ == Exchange::resolve && !launches_.empty() &&
        launches_.front().number == exchange_number_) {
        launches_.front().made = Made::unknown;
    }
    // What is in doubt stays so: it is cancelled again later.
    retries_cancellation_ = retries_cancellation_ || exchange_ == Exchange::cancel;
    exchange_ = Exchange::none;
    waits_since_ = monotonic_nanoseconds();
}

/** Nothing has begun for a while. */
void CancellableCopies::look_if_late() {
    retries_cancellation_ = retries_cancellation_ && !launches_.empty();
    if (launched_ != 0 && exchange_ == Exchange::none &&
        (retries_cancellation_ || launches_.front().made == Made::yes) &&
        monotonic_nanoseconds() - waits_since_ > patience_) {
        begin_exchange(retries_cancellation_ ? Exchange::cancel : Exchange::look);
        retries_cancellation_ = false;
    }
}

// ---------------------------------------------------------------- host memory

/** The next piece of a copy. */
CUresult CancellableCopies::stage(const BatchedCopy &copy) {
    const CudaDriver *driver = CudaDriver::get();
    const CUdeviceptr piece = device_pointer(block() + kExchangeBytes);
    piece_bytes_ = std::min(copy.length - staged_bytes_, kPieceBytes);
    const CUresult result = in_context(context_, id_, [&] {
        return driver->memcpy_async(piece, device_pointer(copy.source) + staged_bytes_,
                                    piece_bytes_, staging_stream_);
    });
    return result != CUDA_SUCCESS ? result : in_context(context_, id_, [&] {
        const CUresult copied = driver->memcpy_async(
            device_pointer(copy.destination) + staged_bytes_, piece, piece_bytes_, staging_stream_);
        return copied == CUDA_SUCCESS ? driver->event_record(piece_event_, staging_stream_)
                                      : copied;
    });
}

void CancellableCopies::advance_staging(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    while (!staged_.empty()) {
        const std::shared_ptr<CopyBatch> &batch = staged_.front();
        const BatchedCopy &copy = batch->copies.front();
        CUresult result = CUDA_SUCCESS;
        if (piece_bytes_ != 0) {
            result = query(piece_event_, staging_stream_);
            if (result == CUDA_ERROR_NOT_READY) {
                return;
            }
            staged_bytes_ += std::exchange(piece_bytes_, 0);
        }
        piece_event_ = piece_event_ != nullptr ? piece_event_ : take_event();
        if (result == CUDA_SUCCESS && staged_bytes_ < copy.length) {
            const bool possible = piece_event_ != nullptr && block() != nullptr;
            result =
                possible ? succeeds_in_two([&] { return stage(copy); }) : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result != CUDA_SUCCESS) {
            await_staging_stream();
            log_copy_failure("cuMemcpyAsync", copy.length, result);
            batch->fail();
            piece_bytes_ = 0;
        }
        if (piece_bytes_ == 0) {
            ended->push_back(batch);
            staged_.pop_front();
            staged_bytes_ = 0;
        }
    }
}

// ---------------------------------------------------------------- progress

void CancellableCopies::advance(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    advance_exchange();
    pass_launches(ended);
    look_if_late();
    launch_waiting();
    advance_staging(ended);
    if (exchange_ != Exchange::none && launched_ == 0 && waiting_.empty() && staged_.empty()) {
        await_staging_stream();  // nobody may call again
        exchange_ = Exchange::none;
    }
    if (exchange_ == Exchange::none && staged_.empty()) {
        block_.reset();
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
    for (std::deque<std::shared_ptr<CopyBatch>> *queue : {&waiting_, &staged_}) {
        for (const std::shared_ptr<CopyBatch> &batch : *queue) {
            fail(*batch);
        }
        queue->clear();
    }
}

}  // namespace gpushm
