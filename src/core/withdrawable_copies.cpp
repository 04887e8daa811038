// SPDX-License-Identifier: BSD-3-Clause
// Copies within a GPU that do not wait for ever for a kernel of the application that fills it.
#include "core/withdrawable_copies.hpp"

#include "core/host_blocks.hpp"
#include "core/host_regions.hpp"
#include "core/log.hpp"
#include "core/monotonic_clock.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {

namespace {

// Longer than what other processes on the GPU take of it at a time (2 ms, driver 580).
constexpr uint64_t kPatience = 5'000'000;  // ns

// More would fill the driver's queue of a stream, which then waits.
constexpr size_t kMostLaunches = 256;
static_assert(kMostLaunches < kMostWithdrawableCopies);

// Of a block of HostBlocks: what is exchanged with the GPU lies before the bytes of copies.
constexpr size_t kExchangeBytes = 4096;
constexpr size_t kPieceBytes = HostBlocks::kBlockBytes - kExchangeBytes;

/** Whether of two counts modulo 2^32 `one` is less than `other`. */
bool is_behind(uint32_t one, uint32_t other) { return static_cast<int32_t>(other - one) > 0; }

}  // namespace

// ---------------------------------------------------------------- what it is made of

std::unique_ptr<WithdrawableCopies> WithdrawableCopies::make(CUcontext context, unsigned long long id,
                                                             std::shared_ptr<const KernelCode> kernels) {
    if (kernels == nullptr || kernels->function(Kernel::withdrawable_copy) == nullptr) {
        return nullptr;
    }
    std::unique_ptr<WithdrawableCopies> copies(new WithdrawableCopies(context, id, std::move(kernels)));
    return copies->make_streams() ? std::move(copies) : nullptr;
}

/** The kernel's has priority: of a copy that has begun all blocks come before those of other kernels. */
bool WithdrawableCopies::make_streams() {
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, context_);
    int least = 0;
    int greatest = 0;
    slot_ = kernels_->take_withdrawal();
    const bool made =
        slot_ && current.result() == CUDA_SUCCESS &&
        driver->ctx_get_stream_priority_range(&least, &greatest) == CUDA_SUCCESS &&
        driver->stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING, greatest) == CUDA_SUCCESS &&
        driver->stream_create(&staging_stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    patience_ = kPatience;
    return made;
}

WithdrawableCopies::~WithdrawableCopies() {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context_, id_);
    if (current.result() == CUDA_SUCCESS) {
        drop_passed();
        if (piece_bytes_ != 0) {
            driver->stream_synchronize(staging_stream_);  // it uses the block
        }
        if (piece_event_ != nullptr) {
            free_events_.push_back(piece_event_);
        }
        for (const Launch &launch : launches_) {
            free_events_.push_back(launch.event);
        }
        for (CUevent event : free_events_) {
            driver->event_destroy(event);
        }
        for (CUstream stream : {stream_, staging_stream_}) {
            if (stream != nullptr) {
                driver->stream_destroy(stream);
            }
        }
        if (block_ != nullptr) {
            HostBlocks::instance().give_back(block_);  // not in a forked child, where it is not of them
        }
    }
    if (slot_ && launches_.empty()) {
        kernels_->give_back_withdrawal(*slot_);
    }
}

CUevent WithdrawableCopies::take_event() {
    CUevent event = nullptr;
    if (!free_events_.empty()) {
        event = free_events_.back();
        free_events_.pop_back();
        return event;
    }
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, context_);
    const bool made = current.result() == CUDA_SUCCESS &&
                      driver->event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    return made ? event : nullptr;
}

/** It is kept until all that was withdrawn has gone, and page-locked if the driver can. */
bool WithdrawableCopies::take_block() {
    if (block_ == nullptr) {
        block_ = static_cast<unsigned char *>(HostBlocks::instance().take());
        if (block_ != nullptr) {
            HostRegions::instance().ensure_pinned(block_, context_, id_);
        }
    }
    return block_ != nullptr;
}

/** What an event says of what lies before it in a stream. */
CUresult WithdrawableCopies::query(CUevent event, CUstream stream) const {
    const CudaDriver *driver = CudaDriver::get();
    const CUresult result = in_context(context_, [&] { return driver->event_query(event); });
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY
               ? result
               // Its end is not known; after this nothing of it runs any more.
               : in_context(context_, [&] { return driver->stream_synchronize(stream); });
}

// ---------------------------------------------------------------- the kernel

/** Kernels that ended without a copy. */
void WithdrawableCopies::drop_passed() {
    while (is_stuck() && query(launches_.front().event, stream_) == CUDA_SUCCESS) {
        free_events_.push_back(launches_.front().event);
        launches_.pop_front();
    }
}

bool WithdrawableCopies::start(const std::shared_ptr<CopyBatch> &batch) {
    drop_passed();
    if (is_stuck()) {
        staged_.push_back(batch);
    } else if (!waiting_.empty() || launches_.size() >= kMostLaunches) {
        waiting_.push_back(batch);
    } else {
        return launch(batch);
    }
    return true;
}

WithdrawableCopy WithdrawableCopies::describe(const BatchedCopy &copy) const {
    WithdrawableCopy described = {};
    described.destination = device_pointer(copy.destination);
    described.source = device_pointer(copy.source);
    described.length = copy.length;
    described.withdrawal = slot_->address;
    described.number = slot_->number + 1;
    if (is_withdrawn(slot_->withdrawn, described.number)) {
        described.number = slot_->withdrawn + 1;  // once in 2^32 copies
    }
    described.begun_before = slot_->begun;
    described.blocks = static_cast<uint32_t>((copy.length + kWithdrawableCopyBytes - 1) / kWithdrawableCopyBytes);
    return described;
}

bool WithdrawableCopies::launch(const std::shared_ptr<CopyBatch> &batch) {
    const CudaDriver *driver = CudaDriver::get();
    WithdrawableCopy copy = describe(batch->copies.front());
    void *parameters[] = {&copy};
    CUevent event = take_event();
    CUresult result = event == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : in_context(context_, [&] {
        return driver->launch_kernel(kernels_->function(Kernel::withdrawable_copy), copy.blocks, 1, 1,
                                     kWithdrawableCopyThreads, 1, 1, 0, stream_, parameters, nullptr);
    });
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "the kernel that copies within a GPU could not be launched (%s)",
                   driver->error_name(result));
        if (event != nullptr) {
            free_events_.push_back(event);
        }
        return false;
    }
    slot_->number = copy.number;
    slot_->begun += copy.blocks;
    result = in_context(context_, [&] { return driver->event_record(event, stream_); });
    if (result != CUDA_SUCCESS) {
        // The kernel runs. An event that was not recorded has passed, so the stream is waited for instead.
        result = in_context(context_, [&] { return driver->stream_synchronize(stream_); });
        if (result != CUDA_SUCCESS) {
            log_copy_failure("cuEventRecord", copy.length, result);
            batch->fail();
        }
    }
    if (launches_.empty()) {
        waits_since_ = monotonic_nanoseconds();
    }
    launches_.push_back({batch, event, copy.number, copy.begun_before, false});
    ++launched_;
    return true;
}

void WithdrawableCopies::launch_waiting() {
    while (!waiting_.empty() && (is_stuck() || launches_.size() < kMostLaunches)) {
        const std::shared_ptr<CopyBatch> batch = std::move(waiting_.front());
        waiting_.pop_front();
        if (is_stuck() || !launch(batch)) {
            staged_.push_back(batch);
        }
    }
}

/** What of the kernels has ended. */
void WithdrawableCopies::pass_launches(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    while (!launches_.empty()) {
        const CUresult result = query(launches_.front().event, stream_);
        if (result == CUDA_ERROR_NOT_READY) {
            return;
        }
        const Launch launch = std::move(launches_.front());
        launches_.pop_front();
        free_events_.push_back(launch.event);
        pass(launch, result, ended);
        waits_since_ = monotonic_nanoseconds();
        patience_ = kPatience;
    }
}

void WithdrawableCopies::pass(const Launch &launch, CUresult result,
                              std::vector<std::shared_ptr<CopyBatch>> *ended) {
    if (launch.batch == nullptr) {
        return;
    }
    --launched_;
    Withdrawal state = {};
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuEventQuery", launch.batch->copies.front().length, result);
        launch.batch->fail();
    } else if (launch.in_doubt && !exchange(nullptr, &state)) {
        launch.batch->fail();
    } else if (launch.in_doubt && is_behind(state.wanted, launch.number)) {
        staged_.push_back(launch.batch);
        return;
    }
    ended->push_back(launch.batch);
}

// ---------------------------------------------------------------- withdrawing

/** Writes and reads the words that the kernel and we share, and waits for that: some microseconds, up to 4 ms
 *  beside a kernel that fills the GPU (H200, driver 580). False, logged: nobody knows. */
bool WithdrawableCopies::exchange(const uint32_t *withdrawn, Withdrawal *state) {
    const CudaDriver *driver = CudaDriver::get();
    if (!take_block()) {
        return false;
    }
    if (withdrawn != nullptr) {
        std::memcpy(block_ + sizeof(Withdrawal), withdrawn, sizeof(*withdrawn));
    }
    const CUdeviceptr words = slot_->address;
    const CUdeviceptr written = device_pointer(block_ + sizeof(Withdrawal));
    const CUdeviceptr read = device_pointer(block_);
    CUresult result = withdrawn == nullptr ? CUDA_SUCCESS : in_context(context_, [&] {
        return driver->memcpy_async(words + offsetof(Withdrawal, withdrawn), written, sizeof(*withdrawn),
                                    staging_stream_);
    });
    if (result == CUDA_SUCCESS) {
        result = in_context(context_, [&] {
            return driver->memcpy_async(read, words, sizeof(Withdrawal), staging_stream_);
        });
    }
    const CUresult ended = wait_for_stream(context_, staging_stream_);
    result = result == CUDA_SUCCESS ? ended : result;
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuMemcpyAsync", sizeof(Withdrawal), result);
    }
    std::memcpy(state, block_, sizeof(*state));
    return result == CUDA_SUCCESS;
}

/** Nothing has begun for a while. */
void WithdrawableCopies::withdraw() {
    Withdrawal state = {};
    waits_since_ = monotonic_nanoseconds();
    patience_ *= 2;
    if (!exchange(nullptr, &state) || is_behind(launches_.front().begun_before, state.begun)) {
        return;  // it runs
    }
    slot_->withdrawn = slot_->number;
    const bool known = exchange(&slot_->withdrawn, &state);
    for (Launch &launch : launches_) {
        if (launch.batch == nullptr) {
            continue;
        }
        launch.in_doubt = !known || is_behind(launch.begun_before, state.begun);
        if (!launch.in_doubt) {
            staged_.push_back(std::exchange(launch.batch, nullptr));
            --launched_;
        }
    }
    GPUSHM_LOG(debug, "a kernel fills the GPU: %zu copies within it go through host memory", staged_.size());
}

// ---------------------------------------------------------------- host memory

/** The next piece of a copy. */
CUresult WithdrawableCopies::stage(const BatchedCopy &copy) {
    const CudaDriver *driver = CudaDriver::get();
    const CUdeviceptr piece = device_pointer(block_ + kExchangeBytes);
    piece_bytes_ = std::min(copy.length - staged_bytes_, kPieceBytes);
    const CUresult result = in_context(context_, [&] {
        return driver->memcpy_async(piece, device_pointer(copy.source) + staged_bytes_, piece_bytes_,
                                    staging_stream_);
    });
    return result != CUDA_SUCCESS ? result : in_context(context_, [&] {
        const CUresult copied = driver->memcpy_async(device_pointer(copy.destination) + staged_bytes_, piece,
                                                     piece_bytes_, staging_stream_);
        return copied == CUDA_SUCCESS ? driver->event_record(piece_event_, staging_stream_) : copied;
    });
}

void WithdrawableCopies::advance_staging(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    const CudaDriver *driver = CudaDriver::get();
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
        } else if (!take_block()) {
            return;  // others give theirs back
        }
        piece_event_ = piece_event_ != nullptr ? piece_event_ : take_event();
        if (result == CUDA_SUCCESS && staged_bytes_ < copy.length) {
            result = piece_event_ != nullptr ? stage(copy) : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result != CUDA_SUCCESS) {
            in_context(context_, [&] { return driver->stream_synchronize(staging_stream_); });
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

void WithdrawableCopies::advance(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    pass_launches(ended);
    if (launched_ != 0 && !launches_.front().in_doubt && monotonic_nanoseconds() - waits_since_ > patience_) {
        withdraw();
    }
    launch_waiting();
    advance_staging(ended);
    if (block_ != nullptr && launches_.empty() && staged_.empty()) {
        HostBlocks::instance().give_back(std::exchange(block_, nullptr));
    }
}

void WithdrawableCopies::abandon(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    for (Launch &launch : launches_) {
        if (launch.batch != nullptr) {
            ended->push_back(std::exchange(launch.batch, nullptr));
        }
    }
    launched_ = 0;
    for (std::deque<std::shared_ptr<CopyBatch>> *queue : {&waiting_, &staged_}) {
        ended->insert(ended->end(), queue->begin(), queue->end());
        queue->clear();
    }
    for (const std::shared_ptr<CopyBatch> &batch : *ended) {
        batch->fail();
    }
}

}  // namespace gpushm
