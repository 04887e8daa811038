// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/copy_engine.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/driver_copies.hpp"
#include "core/copy/reachability.hpp"
#include "core/copy/row_views.hpp"
#include "core/copy/stream_calls.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/standby/standby_registry.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace gpushm {
namespace {

// What copies in half the time that a submission takes. More starts at once, or together with
// others (CopyJob::joint_bytes).
constexpr size_t kCollectBytes = 192u << 10;

// A second batch is submitted while the first runs, so that the copy engine has no pause. Further
// copies wait, so that their batch becomes large.
constexpr size_t kBatchesInFlight = 2;

/** The source may be a block that RowViews has not filled yet. False: it cannot be filled. */
bool complete_source(const CopyJob &job) {
    return RowViews::instance().pack(job.source,
                                     (job.rows.count - 1) * job.rows.source_pitch + job.length);
}

/** The rows to read instead of a whole block that is not filled. Empty: there is no such block, or
 * it is too long: copies of rows to pageable host memory are slow, and copy_any() takes another way
 * for short ones only. */
std::optional<RowViews::Source> rows_to_read(const CopyJob &job) {
    return job.rows.count == 1 && job.length <= PinnedBufferPool::kSmallBlockBytes
               ? RowViews::instance().source(job.source, job.length)
               : std::nullopt;
}

/** The job that reads rows, which are memory of `info`, instead of its source. */
CopyJob reading(const StridedRows &rows, const MemoryInfo &info, const CopyJob &job) {
    const bool from_gpu_side = covers(job.gpu_side, job.source, 1);
    CopyJob by_rows = {job.destination, reinterpret_cast<const void *>(rows.address), rows.length,
                       from_gpu_side ? info : job.gpu_side, job.direction};
    by_rows.rows = {rows.count, rows.length, rows.pitch};
    by_rows.from_host = job.from_host;
    by_rows.to_host = job.to_host;
    by_rows.urgent = job.urgent;
    by_rows.source_may_go = job.source_may_go;
    by_rows.other_side = job.other_side;
    by_rows.source_may_be_unmapped =
        job.source_may_be_unmapped ||
        (job.other_side == OtherSide::same_gpu && !info.is_of_mem_alloc());
    by_rows.transfer_bytes = job.transfer_bytes;
    by_rows.joint_bytes = job.joint_bytes;
    by_rows.other_info = from_gpu_side ? job.other_info : &info;
    by_rows.mailbox = job.mailbox;
    return by_rows;
}

}  // namespace

CopyEngine::~CopyEngine() {
    while (!contexts_.empty()) {
        forget(contexts_.begin());
    }
}

// ---------------------------------------------------------------- contexts

/** What belongs to a living context; null when it has ended, or the driver does not say. */
GpuContext *CopyEngine::enter(CUcontext handle) {
    const auto known = contexts_.find(handle);
    if (known != contexts_.end()) {
        switch (known->second.life.look(handle)) {
            case ContextLife::State::alive:
                return &known->second;
            case ContextLife::State::unknown:
                // Another context may have the handle now. The old one's streams and events may be
                // those of others.
                return nullptr;
            case ContextLife::State::ended:
                drop_ended(known);
        }
    }
    ContextLife life;
    if (!life.identify(handle)) {
        return nullptr;
    }
    return &contexts_.try_emplace(handle, handle, life).first->second;
}

/** The streams and events of a context end with it. */
CopyEngine::Contexts::iterator CopyEngine::drop_ended(Contexts::iterator ended) {
    const size_t before = under_way_;
    fail_all(ended->second);
    if (under_way_ != before) {
        GPUSHM_LOG(error,
                   "GPU copies failed: their context ended before they were complete; let messages "
                   "complete before cudaDeviceReset or cuCtxDestroy");
    }
    return contexts_.erase(ended);
}

/** Drops what belongs to a context, which the application may have ended. */
void CopyEngine::forget(Contexts::iterator context) {
    Scope scope(*this);
    relax_capture();
    context->second.destroy_streams();
    fail_all(context->second);
    contexts_.erase(context);
}

/** Ends what was given to a context of which no answer will come. Allocates nothing. */
void CopyEngine::fail_all(GpuContext &context) {
    context.fail_all([this](CopyBatch &batch) { end(batch); });
}

/** Nobody need ask for it any more. */
void CopyEngine::end(CopyBatch &batch) {
    batch.done = true;
    batch.list.reset();
    --under_way_;
}

/** In a thread whose mode is not relaxed, a capture in global mode in any thread forbids calls such
 * as cuEventQuery, and is invalidated by them (CUDA driver API manual, cuStreamBeginCapture and
 * cuThreadExchangeStreamCaptureMode). */
void CopyEngine::relax_capture() {
    if (!capture_ || !capture_->relaxed()) {
        capture_.emplace(CudaDriver::get());
    }
}

// ---------------------------------------------------------------- starting a copy

/** The context of a copy. Asks the driver nothing when all is known. Null, logged: the driver
 * refuses it. */
GpuContext *CopyEngine::find_context(const CopyJob &job) {
    if (job.gpu_side.context == nullptr) {
        relax_capture();
    }
    const CUcontext handle = context_of(job.gpu_side);
    GpuContext *context = handle != nullptr ? enter(handle) : nullptr;
    if (context == nullptr) {
        log_copy_failure(handle != nullptr ? "cuCtxGetId" : "cuDevicePrimaryCtxRetain", job.length,
                         CUDA_ERROR_INVALID_CONTEXT);
    }
    return context;
}

/** Fills `means`, and page-locks segments of ours. False, logged: the driver refuses the context.
 */
bool CopyEngine::find_means(const CopyJob &job, Means *means) {
    means->context = find_context(job);
    if (means->context == nullptr) {
        return false;
    }
    for (CopyOperand *operand : {&means->operands.destination, &means->operands.source}) {
        operand->pinned_by_us = SegmentTable::instance().ensure_pinned(
            operand->address(), means->context->handle(), means->context->id());
    }
    return true;
}

/** The stream of a copy; null, logged: the driver refuses it. */
CopyStream *CopyEngine::find_stream(GpuContext &context, size_t bytes, CopyDirection direction) {
    relax_capture();
    return context.stream_for(bytes, direction);
}

Status CopyEngine::start(const CopyJob &job, CopyTicket *ticket) {
    *ticket = CopyTicket();
    if (job.length == 0) {
        return Status::ok;
    }
    if (std::optional<RowViews::Source> source = rows_to_read(job)) {
        const MemoryInfo info = query_memory(reinterpret_cast<const void *>(source->rows.address));
        const Status status = start(reading(source->rows, info, job), ticket);
        if (status == Status::in_progress) {
            ticket->reading = std::move(source->reading);
        }
        return status;
    }
    if (!complete_source(job)) {
        return Status::gpu_error;
    }
    Scope scope(*this);
    Means means(job);
    if (!find_means(job, &means)) {
        return Status::gpu_error;
    }
    StandbyTicket standby;
    if (give_to_standby(job, means, &standby)) {
        return note_or_await(job, means, standby, ticket);
    }
    if (start_within_gpu(job, means, ticket)) {
        return Status::in_progress;
    }
    CopyStream *stream = find_stream(*means.context, job.length * job.rows.count, job.direction);
    if (stream == nullptr) {
        return Status::gpu_error;
    }
    collect(job, means, *stream, ticket);
    return poll(ticket);
}

/** Adds a copy to those that are collected for a stream, and submits them if they do not wait for
 * others. */
void CopyEngine::collect(const CopyJob &job, Means &means, CopyStream &stream, CopyTicket *ticket) {
    GpuContext &context = *means.context;
    // A copy outside of a scope of the caller starts at once: the caller may not come back soon.
    const size_t joint_bytes = scopes_ > 1 ? job.joint_bytes : 0;
    if (stream.collected && (stream.collected->joint_bytes != 0) != (joint_bytes != 0)) {
        submit(context, stream, stream.collected);
    }
    const std::shared_ptr<CopyBatch> batch =
        stream.collected ? stream.collected : new_batch(stream.last_done);
    batch->copies.push_back(batched(job, means.operands));
    if (!stream.collected) {
        stream.collected = batch;
        stream.collected->joint_bytes = joint_bytes;
        ++under_way_;
    }
    *ticket = {batch, batch->copies.size() - 1};
    batch->bytes += job.length * job.rows.count;
    has_joint_ |= joint_bytes != 0;
    if (batch->bytes >= std::max(kCollectBytes, joint_bytes) ||
        stream.submitted.size() < kBatchesInFlight || batch->copies.size() >= kCopiesPerBatch) {
        // Where memory is short it waits for the next progress().
        as_possible([&] { submit(context, stream, stream.collected); });
    }
}

Status CopyEngine::copy(const CopyJob &job) {
    if (job.length == 0) {
        return Status::ok;
    }
    if (const std::optional<RowViews::Source> source = rows_to_read(job)) {
        const MemoryInfo info = query_memory(reinterpret_cast<const void *>(source->rows.address));
        return copy(reading(source->rows, info, job));
    }
    if (!complete_source(job)) {
        return Status::gpu_error;
    }
    Scope scope(*this);
    Means means(job);
    if (!find_means(job, &means)) {
        return Status::gpu_error;
    }
    CopyJob awaited = job;
    awaited.urgent = true;
    StandbyTicket standby;
    if (give_to_standby(awaited, means, &standby) &&
        means.context->standby->await(standby) == StandbyKernel::State::served) {
        return Status::ok;
    }
    CopyTicket within_gpu;
    if (start_within_gpu(job, means, &within_gpu)) {
        return wait(&within_gpu);
    }
    const CopyStream *stream = find_stream(*means.context, job.length, job.direction);
    return stream != nullptr ? copy_by_driver(job, means, *stream) : Status::gpu_error;
}

/** Copies and waits. */
Status CopyEngine::copy_by_driver(const CopyJob &job, Means &means, const CopyStream &stream) {
    const GpuContext &context = *means.context;
    const CUstream handle = stream.handle;
    CUresult result = submit_copy(context, stream, batched(job, means.operands));
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuMemcpyAsync", job.length, result);
        return Status::gpu_error;
    }
    result = wait_for_stream(context.handle(), context.id(), handle);
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuStreamQuery", job.length, result);
    }
    return result == CUDA_SUCCESS ? Status::ok : Status::gpu_error;
}

// ---------------------------------------------------------------- batches for the driver

/** Gives copies to the driver, and an event behind them. If this throws, nothing has changed; where
 * memory is short later, the copies fail. */
void CopyEngine::submit(GpuContext &context, CopyStream &stream, std::shared_ptr<CopyBatch> given) {
    given->drop_gone();
    stream.submitted.push_back(std::move(given));
    CopyBatch &batch = *stream.submitted.back();
    if (stream.collected.get() == &batch) {
        stream.collected = nullptr;
    }
    batch.event = context.events.take();
    bool runs = false;
    bool is_whole = true;
    if (batch.event != nullptr) {
        is_whole = as_possible([&] { runs = submit_copies(context, stream, batch); });
        runs |= !is_whole;  // some may
    } else {
        log_copy_failure("cuEventCreate", batch.copies.front().bytes(), CUDA_ERROR_OUT_OF_MEMORY);
        batch.fail();
    }
    const auto record = [&] { return CudaDriver::get()->event_record(batch.event, stream.handle); };
    if (runs && is_whole && context.call(record) == CUDA_SUCCESS) {
        return;
    }
    if (!is_whole) {
        batch.fail();
    }
    end_unsubmitted(context, stream, batch, runs);
    stream.submitted.pop_back();
}

/** Submits a batch that does not count as under way yet; false: memory is short. */
bool CopyEngine::submit_new(GpuContext &context, CopyStream &stream,
                            const std::shared_ptr<CopyBatch> &batch) {
    ++under_way_;
    const bool submitted = as_possible([&] { submit(context, stream, batch); });
    under_way_ -= submitted ? 0 : 1;
    return submitted;
}

/** Ends a batch that has no event. If copies of it run, nobody may touch their buffers before they
 * end. */
void CopyEngine::end_unsubmitted(GpuContext &context, CopyStream &stream, CopyBatch &batch,
                                 bool runs) {
    if (runs) {
        const CUresult result =
            context.call([&] { return CudaDriver::get()->stream_synchronize(stream.handle); });
        if (result != CUDA_SUCCESS) {
            log_copy_failure("cuEventRecord", batch.copies.front().bytes(), result);
            batch.lose();
        }
    }
    context.events.give_back(batch.event);
    batch.is_refused = !runs;
    end(batch);
}

/** Submits what may wait no longer than the call in which it was started. */
void CopyEngine::submit_joint() {
    has_joint_ = false;
    for (auto &entry : contexts_) {
        GpuContext &context = entry.second;
        for (CopyStream &stream : context.streams) {
            if (stream.collected && stream.collected->joint_bytes != 0) {
                // Where memory is short it waits for the next progress().
                as_possible([&] { submit(context, stream, stream.collected); });
            }
        }
    }
}

void CopyEngine::end_scope() {
    if (scopes_ == 1 && has_joint_) {
        submit_joint();
    }
    if (--scopes_ == 0) {
        capture_.reset();
    }
}

// ---------------------------------------------------------------- progress

unsigned CopyEngine::advance_all() {
    Scope scope(*this);
    unsigned count = 0;
    for (auto next = contexts_.begin(); next != contexts_.end();) {
        GpuContext &context = next->second;
        const size_t before = under_way_;
        if (contexts_are_watched() && context.is_busy() &&
            context.life.look(context.handle()) == ContextLife::State::ended) {
            next = drop_ended(next);
            count += static_cast<unsigned>(before - under_way_);
            continue;
        }
        count += advance_given(context);
        count += advance_cancellable(context);
        for (CopyStream &stream : context.streams) {
            if (!stream.submitted.empty() || stream.collected) {
                relax_capture();
                count += advance(context, stream);
            }
        }
        ++next;
    }
    return count;
}

unsigned CopyEngine::advance(GpuContext &context, CopyStream &stream) {
    const CudaDriver *driver = CudaDriver::get();
    unsigned count = 0;
    while (!stream.submitted.empty()) {
        const std::shared_ptr<CopyBatch> &batch = stream.submitted.front();
        CUresult result = context.call([&] { return driver->event_query(batch->event); });
        if (result == CUDA_ERROR_NOT_READY) {
            break;
        }
        if (result != CUDA_SUCCESS) {
            // The end of the copies is not known. Behind this call they do not run any more.
            result = context.call([&] { return driver->stream_synchronize(stream.handle); });
        }
        if (result != CUDA_SUCCESS) {
            log_copy_failure("cuEventQuery", batch->copies.front().bytes(), result);
            batch->lose();
        }
        context.events.give_back(batch->event);
        end(*batch);
        stream.last_done = std::move(stream.submitted.front());
        stream.submitted.pop_front();
        ++count;
    }
    if (stream.collected && stream.submitted.size() < kBatchesInFlight) {
        submit(context, stream, stream.collected);
        ++count;
    }
    return count;
}

Status CopyEngine::poll(CopyTicket *ticket) {
    if (!ticket->batch) {
        return Status::ok;
    }
    if (!ticket->batch->done) {
        return Status::in_progress;
    }
    const bool copy_failed = ticket->batch->copies[ticket->index].failed;
    *ticket = CopyTicket();
    return copy_failed ? Status::gpu_error : Status::ok;
}

Status CopyEngine::wait(CopyTicket *ticket) {
    Scope scope(*this);
    Status status = poll(ticket);
    while (status == Status::in_progress) {
        progress();
        status = poll(ticket);
        if (status == Status::in_progress) {
            StandbyKernels::instance().tend(StandbyKernel::Moment::busy);
        }
    }
    return status;
}

}  // namespace gpushm
