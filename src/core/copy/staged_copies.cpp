// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/staged_copies.hpp"

#include "core/copy/stream_calls.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/pinning/segment_table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {
namespace {

// Of a block of PinnedBufferPool: the words of an exchange lie before the bytes of copies.
constexpr size_t kExchangeBytes = 4096;
constexpr size_t kPieceBytes = PinnedBufferPool::kBlockBytes - kExchangeBytes;

}  // namespace

// ---------------------------------------------------------------- the stream and the block

bool StagedCopies::make_stream(int priority) {
    return CudaDriver::get()->stream_create_with_priority(&stream_, CU_STREAM_NON_BLOCKING,
                                                          priority) == CUDA_SUCCESS;
}

void StagedCopies::destroy_stream() {
    events_.give_back(piece_event_);
    events_.give_back(exchange_event_);
    if (stream_ != nullptr) {
        CudaDriver::get()->stream_destroy(stream_);
    }
}

/** Page-locked if the driver can; null: there is no memory. */
unsigned char *StagedCopies::block() {
    if (!block_) {
        block_.emplace(PinnedBufferPool::kBlockBytes);
        if (block_->address() != nullptr) {
            SegmentTable::instance().ensure_pinned(block_->address(), context_, id_);
        }
    }
    return static_cast<unsigned char *>(block_->address());
}

bool StagedCopies::await() {
    const CUresult result =
        stream_ != nullptr ? wait_for_stream(context_, id_, stream_) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS || context_has_ended(result)) {
        return true;
    }
    if (block_) {
        block_->leave();
        block_.reset();
    }
    exchange_submitted_ = false;
    return false;
}

// ---------------------------------------------------------------- copies

/** Submits the next piece of a copy. */
CUresult StagedCopies::stage(const BatchedCopy &copy) {
    const CudaDriver *driver = CudaDriver::get();
    unsigned char *const piece = block() + kExchangeBytes;
    piece_bytes_ = std::min(copy.length - staged_bytes_, kPieceBytes);
    const CUresult result = in_context(context_, id_, [&] {
        return driver->memcpy_async(device_pointer(piece),
                                    device_pointer(copy.source) + staged_bytes_, piece_bytes_,
                                    stream_);
    });
    BatchedCopy to_gpu = {
        static_cast<unsigned char *>(copy.destination) + staged_bytes_, piece, piece_bytes_, {}};
    leave_to_copy_engine(&to_gpu);
    return result != CUDA_SUCCESS ? result : in_context(context_, id_, [&] {
        const CUresult copied = to_gpu.submit(stream_);
        return copied == CUDA_SUCCESS ? driver->event_record(piece_event_, stream_) : copied;
    });
}

CUresult StagedCopies::start_piece(const BatchedCopy &copy) {
    const bool possible = piece_event_ != nullptr && block() != nullptr;
    return possible ? retry_once([&] { return stage(copy); }) : CUDA_ERROR_OUT_OF_MEMORY;
}

void StagedCopies::advance(std::vector<std::shared_ptr<CopyBatch>> *ended) {
    while (!staged_.empty()) {
        const std::shared_ptr<CopyBatch> &batch = staged_.front();
        const BatchedCopy &copy = batch->copies.front();
        CUresult result = CUDA_SUCCESS;
        if (piece_bytes_ != 0) {
            result = query_event(context_, id_, piece_event_, stream_);
            if (result == CUDA_ERROR_NOT_READY) {
                return;
            }
            staged_bytes_ += std::exchange(piece_bytes_, 0);
        }
        piece_event_ = piece_event_ != nullptr ? piece_event_ : events_.take();
        if (result == CUDA_SUCCESS && staged_bytes_ < copy.length) {
            result = start_piece(copy);
        }
        if (result != CUDA_SUCCESS) {
            await();
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

// ---------------------------------------------------------------- exchanges

void StagedCopies::submit_exchange(const CancellationSlot &slot, bool writes) {
    const CudaDriver *driver = CudaDriver::get();
    unsigned char *const own = block();
    exchange_event_ = exchange_event_ != nullptr ? exchange_event_ : events_.take();
    exchange_submitted_ = false;
    if (own == nullptr || exchange_event_ == nullptr) {
        return;
    }
    unsigned char *const written = own + sizeof(Cancellation);
    std::memcpy(written, &slot.cancelled, sizeof(slot.cancelled));
    CUresult result = CUDA_SUCCESS;
    if (writes) {
        result = in_context(context_, id_, [&] {
            return driver->memcpy_async(slot.address + offsetof(Cancellation, cancelled),
                                        device_pointer(written), sizeof(slot.cancelled), stream_);
        });
    }
    if (result == CUDA_SUCCESS) {
        result = in_context(context_, id_, [&] {
            const CUresult read = driver->memcpy_async(device_pointer(own), slot.address,
                                                       sizeof(Cancellation), stream_);
            return read == CUDA_SUCCESS ? driver->event_record(exchange_event_, stream_) : read;
        });
    }
    exchange_submitted_ = result == CUDA_SUCCESS;
    if (!exchange_submitted_) {
        await();
    }
}

CUresult StagedCopies::query_exchange() const {
    return exchange_submitted_ ? query_event(context_, id_, exchange_event_, stream_)
                               : CUDA_ERROR_UNKNOWN;
}

Cancellation StagedCopies::answer() {
    Cancellation state;
    std::memcpy(&state, block(), sizeof(state));
    return state;
}

}  // namespace gpushm
