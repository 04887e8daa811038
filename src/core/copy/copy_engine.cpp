// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/copy_engine.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/row_views.hpp"
#include "core/copy/cancellable_copies.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/reclaim/kernel_preload.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/shm/message_in_hand.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpushm {

namespace {

// From here on a copy is worth a stream of its own, so that small ones overtake it.
constexpr size_t kBulkBytes = 1u << 20;

// What copies in half the time that a submission takes; more starts at once, or together with
// others (CopyJob::joint_bytes).
constexpr size_t kCollectBytes = 192u << 10;

// A second batch is submitted while the first runs, so that the copy engine has no pause; more
// wait, so that they become large.
constexpr size_t kBatchesInFlight = 2;
constexpr size_t kCopiesPerBatch = 64;

// Up to how many bytes the standby kernel is quicker than the driver, where both sides are aligned
// to 16 bytes and it uses its widest words.
struct StandbyLimits {
    size_t between_gpus;
    size_t within_gpu;
    size_t to_host;
    size_t from_host;
};
struct StandbyModel {
    StandbyLimits alone;
    StandbyLimits in_traffic;  // several are under way, so that the bandwidth counts
    size_t managed;            // the driver takes 3 to 6 us longer for each copy of managed memory
};

// What a CPU has just written comes out of its cache: to a GPU less in traffic (windows of 16
// KiB 2.1 us and 1.7 by the driver), but of a message that is alone each piece would wait for an
// engine to start.

// One block. H200: with either, 8.5 us for 96 KiB between two GPUs; windows of 64 KiB: between
// GPUs 2.0 us each and 2.5, within one 1.7 and 5.1, to the host 2.3 and 2.8; from the host alone,
// written before, 40 KiB 11 us and 18, 64 KiB 13 and 23, 96 KiB 19 and 25.
constexpr StandbyModel kBlockModel = {{96u << 10, 96u << 10, 192u << 10, 96u << 10},
                                      {64u << 10, 64u << 10, 64u << 10, 12u << 10},
                                      128u << 10};

// A cluster. H100, alone, by kernel and driver: 512 KiB between GPUs 8.5 us and 9.1, within one 6.8
// and 10.6, to the host 15.4 and 17.5; 1 MiB 11.7 and 11.1, 8.5 and 10.5, 25 and 27.6. Whole
// messages from the host (H200): 128 KiB 11.3 us and 12.8, 512 KiB 19.1 and 20.3, 768 KiB 24.0
// and 24.7; written before 16.3 and 17.4, 35 and 34, 45 and 45. Windows of 256 KiB between GPUs 1.9
// us each and 2.3, of 512 KiB within one 2.4 and 5.7; of 16 KiB through the host 2.7 and 5.0. To
// and from the host no more, since the kernel does one direction after the other, of which a GPU's
// engines do both at a time (H200, to the host: 256 KiB 6.2 and 5.1); and what a CPU has just
// written (windows of 128 KiB 8.9 us each and 7.2).
constexpr StandbyModel kClusterModel = {{768u << 10, 1u << 20, 768u << 10, 768u << 10},
                                        {256u << 10, 1u << 20, 64u << 10, 32u << 10},
                                        1u << 20};

constexpr bool is_least_in_traffic(const StandbyModel &model) {
    return model.in_traffic.between_gpus <= model.alone.between_gpus &&
           model.in_traffic.within_gpu <= model.alone.within_gpu &&
           model.in_traffic.to_host <= model.alone.to_host &&
           model.in_traffic.from_host <= model.alone.from_host;
}
static_assert(is_least_in_traffic(kBlockModel) && is_least_in_traffic(kClusterModel),
              "give_to_standby() relies on it");
static_assert(kClusterModel.alone.within_gpu <= kMaxStandbyBytes &&
                  kClusterModel.managed <= kMaxStandbyBytes &&
                  kClusterModel.alone.between_gpus <= kMaxStandbyElsewhere &&
                  kClusterModel.alone.to_host <= kMaxStandbyElsewhere &&
                  kClusterModel.alone.from_host <= kMaxStandbyElsewhere,
              "these are the largest");

/** The source may be a block whose contents are elsewhere still; false when they cannot be had. */
bool complete_source(const CopyJob &job) {
    return RowViews::instance().pack(job.source,
                                     (job.rows.count - 1) * job.rows.source_pitch + job.length);
}

bool covers(const MemoryInfo &info, const void *address, size_t length) {
    const auto *begin = static_cast<const unsigned char *>(info.base);
    const auto *from = static_cast<const unsigned char *>(address);
    return from >= begin && length <= info.length &&
           static_cast<size_t>(from - begin) <= info.length - length;
}

}  // namespace

void log_copy_failure(const char *what, size_t length, CUresult result) {
    GPUSHM_LOG(error,
               "%s failed for a GPU copy of %zu bytes (%s): see whether the application freed "
               "the buffer too early or a kernel faulted (compute-sanitizer)",
               what, length, CudaDriver::get()->error_name(result));
}

CopyEngine::Context::Context() = default;
CopyEngine::Context::~Context() = default;

CopyEngine::~CopyEngine() {
    while (!contexts_.empty()) {
        forget(contexts_.begin()->first);
    }
    for (const auto &[device, context] : primary_contexts_) {
        (void)context;
        CudaDriver::get()->device_primary_ctx_release(device);
    }
}

// ---------------------------------------------------------------- contexts, streams, events

CUcontext CopyEngine::context_of(const MemoryInfo &gpu_side) {
    if (gpu_side.context != nullptr) {
        return gpu_side.context;
    }
    const auto known = primary_contexts_.find(gpu_side.device);
    if (known != primary_contexts_.end()) {
        return known->second;
    }
    CUcontext context = nullptr;
    const bool retained = tried_twice([&] {
        context = retain_for_copies(gpu_side.device);
        return context != nullptr;
    });
    if (retained) {
        primary_contexts_[gpu_side.device] = context;
    }
    return context;
}

CUcontext CopyEngine::context_near(uint64_t device_wanted) {
    const auto known = near_contexts_.find(device_wanted);
    if (known != near_contexts_.end() &&
        look_at(known->second.handle, known->second.life) == Look::alive) {
        return known->second.handle;
    }
    NearContext found;
    found.handle = find_near(device_wanted);
    if (found.handle == nullptr || !identify(found.handle, &found.life)) {
        near_contexts_.erase(device_wanted);
        return nullptr;
    }
    near_contexts_[device_wanted] = found;
    return found.handle;
}

/** It may have ended, as the current one may be. */
CUcontext CopyEngine::find_near(uint64_t device_wanted) {
    const CudaDriver *driver = CudaDriver::get();
    int count = 0;
    if (driver->device_get_count(&count) != CUDA_SUCCESS) {
        count = 0;
    }
    CUcontext found = nullptr;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device = 0;
        if (driver->device_get(&device, ordinal) == CUDA_SUCCESS &&
            driver->primary_context_is_active(device).value_or(false) &&
            (found == nullptr || device_identity(device) == device_wanted)) {
            MemoryInfo info;
            info.device = device;
            found = context_of(info);
        }
    }
    if (found == nullptr) {
        driver->ctx_get_current(&found);
    }
    return found;
}

/** Asks the driver only if a context may have ended since it was asked last. */
CopyEngine::Look CopyEngine::look_at(CUcontext handle, Life &life) {
    const uint64_t epoch = context_epoch();  // before the driver is asked
    if (contexts_are_watched() && life.epoch == epoch) {
        return Look::alive;
    }
    unsigned long long id = 0;
    const CUresult result = CudaDriver::get()->query_context_id(handle, &id);
    if (result == CUDA_SUCCESS && id == life.id) {
        life.epoch = epoch;
        return Look::alive;
    }
    return result == CUDA_SUCCESS || context_has_ended(result) ? Look::ended : Look::unknown;
}

/** Which one has this handle now; false when it is dead, or nobody knows. */
bool CopyEngine::identify(CUcontext handle, Life *life) {
    life->epoch = context_epoch();  // before the driver is asked
    const CudaDriver *driver = CudaDriver::get();
    const CUresult result = driver->query_context_id(handle, &life->id);
    return result == CUDA_SUCCESS || (context_has_ended(result) &&
                                      driver->query_context_id(handle, &life->id) == CUDA_SUCCESS);
}

/** What belongs to a living context; null when it is dead, or nobody knows. */
CopyEngine::Context *CopyEngine::enter(CUcontext handle) {
    const auto known = contexts_.find(handle);
    if (known != contexts_.end()) {
        switch (look_at(handle, known->second.life)) {
            case Look::alive:
                return &known->second;
            // It may be another one than before, where handles of the old one name streams and
            // events of others.
            case Look::unknown:
                return nullptr;
            case Look::ended:
                drop_ended(known);
        }
    }
    Life life;
    if (!identify(handle, &life)) {
        return nullptr;
    }
    Context &context = contexts_[handle];
    context.life = life;
    context.standby = StandbyKernels::instance().find(handle, life.id);
    context.kernels = KernelCodes::instance().find(handle, life.id);
    return &context;
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

bool CopyEngine::make_stream(CUcontext handle, const Context &context, Stream &stream) {
    return tried_twice([&] {
        const CudaDriver *driver = CudaDriver::get();
        CurrentContext current(driver, handle, context.life.id);
        return current.result() == CUDA_SUCCESS &&
               driver->stream_create(&stream.handle, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    });
}

CUevent CopyEngine::take_event(CUcontext handle, Context &context) {
    CUevent event = nullptr;
    if (!context.free_events.empty()) {
        event = context.free_events.back();
        context.free_events.pop_back();
        return event;
    }
    const bool made = tried_twice([&] {
        const CudaDriver *driver = CudaDriver::get();
        CurrentContext current(driver, handle, context.life.id);
        return current.result() == CUDA_SUCCESS &&
               driver->event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    });
    return made ? event : nullptr;
}

/** Drops what belongs to a context, which may have been destroyed by the application
 * (cudaDeviceReset): then there is nothing left to free. */
void CopyEngine::forget(CUcontext handle) {
    const CudaDriver *driver = CudaDriver::get();
    const auto found = contexts_.find(handle);
    Context &context = found->second;
    Scope scope(*this);
    relax_capture();
    CurrentContext current(driver, handle, context.life.id);
    for (Stream &stream : context.streams) {
        for (const std::shared_ptr<CopyBatch> &batch : stream.submitted) {
            if (current.result() == CUDA_SUCCESS) {
                driver->event_destroy(batch->event);
            }
            if (!context_has_ended(current.result())) {
                batch->lose();
            }
        }
    }
    if (current.result() == CUDA_SUCCESS) {
        for (const Stream &stream : context.streams) {
            if (stream.handle != nullptr) {
                driver->stream_destroy(stream.handle);
            }
        }
        for (CUevent event : context.free_events) {
            driver->event_destroy(event);
        }
    }
    fail_all(context);
    contexts_.erase(found);
}

/** Nobody need ask for it any more. */
void CopyEngine::end(CopyBatch &batch) {
    batch.done = true;
    batch.list.reset();
    --under_way_;
}

unsigned CopyEngine::end_all() {
    const auto count = static_cast<unsigned>(ended_.size());
    for (const std::shared_ptr<CopyBatch> &batch : ended_) {
        end(*batch);
    }
    ended_.clear();
    return count;
}

/** Ends what was given to a context of which no answer will come. Allocates nothing. */
void CopyEngine::fail_all(Context &context) {
    for (const std::shared_ptr<CopyBatch> &batch : context.given) {
        context.standby->abandon(batch->standby);
        batch->fail();
        end(*batch);
    }
    context.given.clear();
    if (context.cancellable) {
        context.cancellable->abandon([this](CopyBatch &batch) { end(batch); });
    }
    for (Stream &stream : context.streams) {
        if (stream.collected) {
            stream.collected->fail();
            end(*stream.collected);
            stream.collected.reset();
        }
        for (const std::shared_ptr<CopyBatch> &batch : stream.submitted) {
            batch->fail();
            end(*batch);
        }
        stream.submitted.clear();
    }
}

// ---------------------------------------------------------------- stream captures

/** In a thread whose mode is not relaxed, a capture in global mode in any thread forbids calls such
 * as cuEventQuery, and is invalidated by them (CUDA driver API manual, cuStreamBeginCapture and
 * cuThreadExchangeStreamCaptureMode). */
void CopyEngine::relax_capture() {
    if (!capture_ || !capture_->relaxed()) {
        capture_.emplace(CudaDriver::get());
    }
}

// ---------------------------------------------------------------- copies

/** The context of a copy. Asks the driver nothing when all is known. False, logged, when the driver
 * refuses it. */
bool CopyEngine::find_context(const CopyJob &job, Means *means) {
    if (job.gpu_side.context == nullptr) {
        relax_capture();
    }
    means->handle = context_of(job.gpu_side);
    means->context = means->handle != nullptr ? enter(means->handle) : nullptr;
    if (means->context == nullptr) {
        log_copy_failure(means->handle != nullptr ? "cuCtxGetId" : "cuDevicePrimaryCtxRetain",
                         job.length, CUDA_ERROR_INVALID_CONTEXT);
        return false;
    }
    SegmentTable &regions = SegmentTable::instance();
    const unsigned long long id = means->context->life.id;
    means->destination_pinned = regions.ensure_pinned(job.destination, means->handle, id);
    means->source_pinned = regions.ensure_pinned(job.source, means->handle, id);
    return true;
}

/** The stream of a copy; null, logged, when the driver refuses it. */
CopyEngine::Stream *CopyEngine::find_stream(CUcontext handle, Context &context, size_t length,
                                            CopyDirection direction) {
    Stream &stream = context.streams[(length >= kBulkBytes ? 2 : 0) +
                                     (direction == CopyDirection::from_gpu ? 1 : 0)];
    relax_capture();
    if (stream.handle == nullptr && !make_stream(handle, context, stream)) {
        log_copy_failure("cuStreamCreate", length, CUDA_ERROR_OUT_OF_MEMORY);
        return nullptr;
    }
    return &stream;
}

/** The standby kernel has taken a copy. */
void CopyEngine::note_given(Context &context, const CopyJob &job, const StandbyTicket &standby,
                            CopyTicket *ticket) {
    const std::shared_ptr<CopyBatch> batch = new_batch(context.last_served);
    batch->copies.push_back(batched(job));
    batch->bytes = job.length;  // of one row: the kernel gets no others
    batch->standby = standby;
    batch->direction = job.direction;
    batch->gpu_side = covers(job.gpu_side, job.source, 1) ? job.source : job.destination;
    batch->gpu_side_id = job.gpu_side.buffer_id;
    context.given.push_back(batch);
    ++under_way_;
    *ticket = {batch, 0};
}

Status CopyEngine::await_standby(StandbyKernel &standby, StandbyTicket ticket) {
    StandbyKernel::State state = StandbyKernel::State::waiting;
    while (state == StandbyKernel::State::waiting) {
        state = standby.state(&ticket);
    }
    return state == StandbyKernel::State::served ? Status::ok : Status::gpu_error;
}

Status CopyEngine::start(const CopyJob &job, CopyTicket *ticket) {
    *ticket = CopyTicket();
    if (job.length == 0) {
        return Status::ok;
    }
    if (!complete_source(job)) {
        return Status::gpu_error;
    }
    Scope scope(*this);
    Means means;
    if (!find_context(job, &means)) {
        return Status::gpu_error;
    }
    Context &context = *means.context;
    StandbyTicket standby;
    if (give_to_standby(job, means, &standby)) {
        return as_possible([&] { note_given(context, job, standby, ticket); })
                   ? Status::in_progress
                   : await_standby(*context.standby, standby);
    }
    if (start_within_gpu(job, means, ticket)) {
        return Status::in_progress;
    }
    const size_t bytes = job.length * job.rows.count;
    Stream *chosen = find_stream(means.handle, context, bytes, job.direction);
    if (chosen == nullptr) {
        return Status::gpu_error;
    }
    Stream &stream = *chosen;
    // One that is not within a scope of the caller starts at once, for nobody may call again soon.
    const size_t joint_bytes = scopes_ > 1 ? job.joint_bytes : 0;
    if (stream.collected && (stream.collected->joint_bytes != 0) != (joint_bytes != 0)) {
        submit_collected(means.handle, context, stream);
    }
    const std::shared_ptr<CopyBatch> batch =
        stream.collected ? stream.collected : new_batch(stream.last_done);
    batch->copies.push_back(batched(job));
    if (!stream.collected) {
        stream.collected = batch;
        stream.collected->joint_bytes = joint_bytes;
        ++under_way_;
    }
    *ticket = {stream.collected, stream.collected->copies.size() - 1};
    stream.collected->bytes += bytes;
    has_joint_ |= joint_bytes != 0;
    if (stream.collected->bytes >= std::max(kCollectBytes, joint_bytes) ||
        stream.submitted.size() < kBatchesInFlight ||
        stream.collected->copies.size() >= kCopiesPerBatch) {
        // For want of memory it waits for the next progress().
        as_possible([&] { submit_collected(means.handle, context, stream); });
    }
    return poll(ticket);
}

Status CopyEngine::copy(const CopyJob &job) {
    if (job.length == 0) {
        return Status::ok;
    }
    if (!complete_source(job)) {
        return Status::gpu_error;
    }
    Scope scope(*this);
    Means means;
    if (!find_context(job, &means)) {
        return Status::gpu_error;
    }
    CopyJob awaited = job;
    awaited.urgent = true;
    StandbyTicket standby;
    if (give_to_standby(awaited, means, &standby) &&
        await_standby(*means.context->standby, standby) == Status::ok) {
        return Status::ok;
    }
    CopyTicket within_gpu;
    if (start_within_gpu(job, means, &within_gpu)) {
        return wait(&within_gpu);
    }
    const Stream *chosen = find_stream(means.handle, *means.context, job.length, job.direction);
    if (chosen == nullptr) {
        return Status::gpu_error;
    }
    const CUstream stream = chosen->handle;
    CUresult result = submit_copy(means.handle, *means.context, *chosen, batched(job));
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuMemcpyAsync", job.length, result);
        return Status::gpu_error;
    }
    result = wait_for_stream(means.handle, means.context->life.id, stream);
    if (result != CUDA_SUCCESS) {
        log_copy_failure("cuStreamQuery", job.length, result);
    }
    return result == CUDA_SUCCESS ? Status::ok : Status::gpu_error;
}

CUresult wait_for_stream(CUcontext handle, unsigned long long id, CUstream stream) {
    const CudaDriver *driver = CudaDriver::get();
    CUresult result = CUDA_SUCCESS;
    do {
        result = in_context(handle, id, [&] { return driver->stream_query(stream); });
    } while (result == CUDA_ERROR_NOT_READY);
    if (result != CUDA_SUCCESS) {
        // Whether what was submitted runs is not known; after this it does not any more.
        result = in_context(handle, id, [&] { return driver->stream_synchronize(stream); });
    }
    return result;
}

// ---------------------------------------------------------------- the standby kernel

namespace {

/** Whether all of it is memory of the GPU that `info` names: what is imported, perhaps from another
 * one, is not IPC capable. */
bool is_of_gpu(const MemoryInfo &info, const void *address, size_t length) {
    return info.kind == MemoryKind::device && info.ipc_capable && covers(info, address, length);
}

size_t transfer_bytes(const CopyJob &job) {
    return std::max(job.length, job.transfer_bytes);
}

/** The largest transfer that the kernel copies more quickly. Addresses that are aligned less let it
 * use narrower words. */
size_t standby_limit(const StandbyModel &model, const CopyJob &job, bool from_host, bool idle) {
    const bool is_alone = from_host ? job.urgent : idle;
    const StandbyLimits &limits = is_alone ? model.alone : model.in_traffic;
    const size_t limit = job.gpu_side.kind == MemoryKind::managed   ? model.managed
                         : from_host                                ? limits.from_host
                         : job.direction == CopyDirection::from_gpu ? limits.to_host
                         : job.other_side == OtherSide::same_gpu    ? limits.within_gpu
                                                                    : limits.between_gpus;
    const auto bits =
        reinterpret_cast<uintptr_t>(job.destination) | reinterpret_cast<uintptr_t>(job.source);
    return bits % 16 == 0  ? limit
           : bits % 8 == 0 ? limit / 2
           : bits % 4 == 0 ? limit / 4
                           : limit / 16;
}

/** Of memory that names no context: that of pools, and what is mapped by virtual memory management,
 * of which neighbours may be mapped differently. What would take long to ask for is taken for
 * inaccessible. */
bool may_access(CUcontext context, const void *address, size_t length) {
    constexpr CUdeviceptr kUnit =
        2u << 20;  // of mappings (cuMemGetAllocationGranularity of H100, H200 and before)
    constexpr size_t kMaxUnits = 64;  // 6 us
    if (length > kMaxUnits * kUnit) {
        return false;
    }
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, context);
    const auto accessible = [driver](CUdeviceptr byte) {
        int flags = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
        CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
        void *value = &flags;
        return driver->pointer_get_attributes(1, &attribute, &value, byte) == CUDA_SUCCESS &&
               flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    };
    const CUdeviceptr end = device_pointer(address) + length;
    bool all = current.result() == CUDA_SUCCESS;
    for (CUdeviceptr byte = device_pointer(address); all && byte < end;
         byte = (byte / kUnit + 1) * kUnit) {
        all = accessible(byte);
    }
    return all;
}

}  // namespace

bool kernels_reach(const MemoryInfo &info, const void *address, size_t length, CUdevice device,
                   CUcontext context) {
    if (info.kind == MemoryKind::pinned) {
        // What HostRegistrationCache has locked stays so only for who holds it.
        return covers(info, address, length) &&
               !HostRegistrationCache::instance().has_locked(address, length) &&
               is_mapped_for_kernels(address);
    }
    if (info.kind != MemoryKind::device || info.device != device ||
        !covers(info, address, length)) {
        return false;
    }
    if (info.context != nullptr) {
        return info.ipc_capable && info.context == context;
    }
    return info.ipc_capable || may_access(context, address, length);
}

/** One side is memory of gpu_side, or both are. `managed_too`: managed memory counts where kernels
 * may read it as it is; what lies elsewhere then comes to them page by page. */
bool CopyEngine::kernels_reach_both(const CopyJob &job, const Means &means, bool managed_too) {
    const auto reach = [&](const void *address, size_t pitch, bool pinned_by_us) {
        const MemoryInfo &own = job.gpu_side;
        const size_t extent = (job.rows.count - 1) * pitch + job.length;
        if (pinned_by_us) {
            return SegmentTable::instance().contains(static_cast<const char *>(address) + extent -
                                                     1);
        }
        const MemoryInfo info = covers(own, address, extent) ? own : query_memory(address);
        return managed_too && info.kind == MemoryKind::managed
                   ? covers(info, address, extent) && has_concurrent_access(own.device)
                   : kernels_reach(info, address, extent, own.device, means.handle);
    };
    return reach(job.destination, job.rows.destination_pitch, means.destination_pinned) &&
           reach(job.source, job.rows.source_pitch, means.source_pinned);
}

/** False: the copy engine is to do it. So it is for the pieces of what is too long as a whole: a
 * program that sends only long messages never has the kernel. */
bool CopyEngine::give_to_standby(const CopyJob &job, const Means &means, StandbyTicket *ticket) {
    StandbyKernel *standby = means.context->standby.get();
    if (standby == nullptr || job.rows.count > 1) {
        return false;
    }
    const StandbyModel &model = standby->is_cluster() ? kClusterModel : kBlockModel;
    const bool from_host = means.source_pinned || job.from_host;
    if (transfer_bytes(job) > standby_limit(model, job, from_host, true) ||
        (!job.in_reach && !kernels_reach_both(job, means, true))) {
        return false;
    }
    // StandbyWorth compares steps by the number of their copies, so none may count only where
    // others are slow.
    standby->note_copy();
    if (transfer_bytes(job) > standby_limit(model, job, from_host, idle())) {
        return false;
    }
    const bool is_managed = job.gpu_side.kind == MemoryKind::managed;
    if (is_managed && !idle() && !standby->alive()) {
        // Several of them: to start each takes a CPU 5 to 6 us, a launch 3 to 4.
        StandbyKernels::instance().tend(StandbyKernel::Moment::costly);
    }
    StandbyJob copy = {job.destination, job.source, job.length};
    copy.cpu_may_read = means.source_pinned;
    copy.cpu_may_write = means.destination_pinned;
    copy.to_own_gpu = is_of_gpu(job.gpu_side, job.destination, job.length);
    const MailboxReceiver *mailbox = means.source_pinned ? MessageInHand::mailbox() : nullptr;
    if (mailbox != nullptr) {  // where the source is payload of it all its slots are in reach
        const MessagePayload payload = mailbox->payload_at(job.source, job.length);
        copy.message = payload.message;
        copy.next = mailbox->payload_behind(payload);
    }
    return standby->give(copy, ticket);
}

/** The program may have freed it, such as by a cudaFree that sent the kernel away: of messages that
 * were given up (a forced close), which nobody waits for. A kernel that is launched now would touch
 * what is not there any more. */
bool CopyEngine::has_lost_memory(const CopyBatch &batch) {
    return batch.gpu_side_id != 0 && query_memory(batch.gpu_side).buffer_id != batch.gpu_side_id;
}

/** What the standby kernel did not copy. */
void CopyEngine::submit_unserved(CUcontext handle, Context &context,
                                 const std::shared_ptr<CopyBatch> &batch) {
    if (context.kernels != nullptr && was_within_gpu(*batch) &&
        start_cancellable(handle, context, batch)) {
        return;
    }
    if (Stream *stream = find_stream(handle, context, batch->bytes, batch->direction)) {
        drop_gone(*batch);
        submit(handle, context, *stream, batch);
    } else {
        batch->fail();
        end(*batch);
    }
}

/** What the kernel has ended; what it did not do the copy engine does now. */
unsigned CopyEngine::advance_given(CUcontext handle, Context &context) {
    unsigned count = 0;
    while (!context.given.empty()) {
        const StandbyKernel::State state = context.standby->state(&context.given.front()->standby);
        if (state == StandbyKernel::State::waiting) {
            break;
        }
        const std::shared_ptr<CopyBatch> batch = std::move(context.given.front());
        context.given.pop_front();
        ++count;
        if (state == StandbyKernel::State::served) {
            end(*batch);
            context.last_served = batch;
        } else if (has_lost_memory(*batch)) {
            batch->fail();
            end(*batch);
        } else if (!as_possible([&] { submit_unserved(handle, context, batch); })) {
            batch->fail();
            end(*batch);
        }
    }
    return count;
}

// ---------------------------------------------------------------- within a GPU

namespace {

/** And of one context. */
bool both_of_gpu(const MemoryInfo &destination, const BatchedCopy &copy) {
    if (!is_of_gpu(destination, copy.destination, copy.length)) {
        return false;
    }
    const MemoryInfo source = query_memory(copy.source);
    return is_of_gpu(source, copy.source, copy.length) && source.device == destination.device &&
           source.context == destination.context;
}

}  // namespace

/** Of a batch of one copy, which the standby kernel was given. */
bool CopyEngine::was_within_gpu(const CopyBatch &batch) {
    const BatchedCopy &copy = batch.copies.front();
    return batch.direction == CopyDirection::to_gpu && copy.other_side != OtherSide::elsewhere &&
           (copy.other_side == OtherSide::same_gpu ||
            both_of_gpu(query_memory(copy.destination), copy));
}

/** And one that CancellableCopies can make. */
bool CopyEngine::is_within_gpu(const CopyJob &job, const Means &means) {
    const KernelCode *kernels = means.context->kernels.get();
    if (job.other_side == OtherSide::elsewhere || job.direction != CopyDirection::to_gpu ||
        job.rows.count > 1 || job.from_host || means.source_pinned || means.destination_pinned ||
        kernels == nullptr || kernels->function(Kernel::cancellable_copy) == nullptr) {
        return false;
    }
    if (job.other_side == OtherSide::same_gpu) {
        return true;
    }
    const bool is_destination = covers(job.gpu_side, job.destination, job.length);
    return both_of_gpu(is_destination ? job.gpu_side : query_memory(job.destination), batched(job));
}

/** A batch of one copy. False: it is for the driver. */
bool CopyEngine::start_cancellable(CUcontext handle, Context &context,
                                   const std::shared_ptr<CopyBatch> &batch) {
    static const bool possible = !launches_are_synchronous();
    relax_capture();
    if (possible && !context.cancellable) {
        context.cancellable = CancellableCopies::make(handle, context.life.id, context.kernels);
    }
    return context.cancellable && context.cancellable->start(batch);
}

/** False: it is for the driver. */
bool CopyEngine::start_within_gpu(const CopyJob &job, const Means &means, CopyTicket *ticket) {
    if (!is_within_gpu(job, means)) {
        return false;
    }
    const std::shared_ptr<CopyBatch> batch = new_batch(means.context->last_cancellable);
    batch->copies.push_back(batched(job));
    if (!start_cancellable(means.handle, *means.context, batch)) {
        return false;
    }
    ++under_way_;
    *ticket = {batch, 0};
    return true;
}

unsigned CopyEngine::advance_cancellable(Context &context) {
    if (!context.cancellable || context.cancellable->idle()) {
        return 0;
    }
    relax_capture();
    as_possible(
        [&] { context.cancellable->advance(&ended_); });  // what is left is done by the next call
    if (!ended_.empty()) {
        context.last_cancellable = ended_.back();
    }
    return end_all();
}

// ---------------------------------------------------------------- the copy engine

namespace {

/** The driver wants to know for rows what it finds out by itself for a single copy. */
CUresult copy_rows(const BatchedCopy &copy, CUstream stream) {
    CUDA_MEMCPY2D rows = {};
    const auto describe = [](const void *address, CUmemorytype &type, CUdeviceptr &on_gpu) {
        type = query_memory(address).needs_gpu() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        on_gpu = device_pointer(address);
    };
    describe(copy.source, rows.srcMemoryType, rows.srcDevice);
    describe(copy.destination, rows.dstMemoryType, rows.dstDevice);
    rows.srcHost = copy.source;
    rows.dstHost = copy.destination;
    rows.srcPitch = copy.rows.source_pitch;
    rows.dstPitch = copy.rows.destination_pitch;
    rows.WidthInBytes = copy.length;
    rows.Height = copy.rows.count;
    return CudaDriver::get()->memcpy_2d_async(&rows, stream);
}

}  // namespace

/** One copy. What may be a passing shortage is tried again: UCP ends the process when a copy
 * between memory kinds fails. */
CUresult CopyEngine::submit_copy(CUcontext handle, const Context &context, const Stream &stream,
                                 const BatchedCopy &copy) {
    const OwnCopies own;
    const auto submit_once = [&] {
        return copy.rows.count > 1 ? copy_rows(copy, stream.handle)
                                   : CudaDriver::get()->memcpy_async(
                                         device_pointer(copy.destination),
                                         device_pointer(copy.source), copy.length, stream.handle);
    };
    const CUresult result = in_context(handle, context.life.id, submit_once);
    return result == CUDA_SUCCESS ? result : in_context(handle, context.life.id, submit_once);
}

/** Copies that waited, of sources that were freed meanwhile: what is there now, if anything, nobody
 * has asked for. */
void CopyEngine::drop_gone(CopyBatch &batch) {
    for (BatchedCopy &copy : batch.copies) {
        copy.failed = copy.source_id != 0 && query_memory(copy.source).buffer_id != copy.source_id;
    }
}

void CopyEngine::submit_collected(CUcontext handle, Context &context, Stream &stream) {
    const std::shared_ptr<CopyBatch> batch = stream.collected;
    drop_gone(*batch);
    submit(handle, context, stream, batch);
}

/** Gives copies to the driver, behind them an event. An exception comes before that, and changes
 * nothing; where memory is short later, the copies fail. */
void CopyEngine::submit(CUcontext handle, Context &context, Stream &stream,
                        const std::shared_ptr<CopyBatch> &batch) {
    const CudaDriver *driver = CudaDriver::get();
    stream.submitted.push_back(batch);
    if (stream.collected == batch) {
        stream.collected = nullptr;
    }
    batch->event = take_event(handle, context);
    bool runs = false;
    bool is_whole = true;
    if (batch->event != nullptr) {
        is_whole = as_possible([&] { runs = submit_copies(handle, context, stream, *batch); });
        runs |= !is_whole;  // some may
    } else {
        log_copy_failure("cuEventCreate", batch->copies.front().length, CUDA_ERROR_OUT_OF_MEMORY);
        batch->fail();
    }
    CUresult result = CUDA_SUCCESS;
    if (runs && is_whole) {
        result = in_context(handle, context.life.id,
                            [&] { return driver->event_record(batch->event, stream.handle); });
    }
    if (runs && is_whole && result == CUDA_SUCCESS) {
        return;
    }
    if (!is_whole) {
        batch->fail();
    }
    stream.submitted.pop_back();
    if (runs) {
        // The copies run, and nobody may touch their buffers before they end.
        result = in_context(handle, context.life.id,
                            [&] { return driver->stream_synchronize(stream.handle); });
        if (result != CUDA_SUCCESS) {
            log_copy_failure("cuEventRecord", batch->copies.front().length, result);
            batch->lose();
        }
    }
    if (batch->event != nullptr) {
        as_possible([&] { context.free_events.push_back(batch->event); });
    }
    end(*batch);
}

/** Whether any of the copies runs; those that the driver refused are marked. What is marked already
 * is left out. */
bool CopyEngine::submit_copies(CUcontext handle, const Context &context, const Stream &stream,
                               CopyBatch &batch) {
    const CudaDriver *driver = CudaDriver::get();
    if (batch.by_kernel && launch_copies(handle, context, stream, batch)) {
        return true;
    }
    const bool all_single =
        std::all_of(batch.copies.begin(), batch.copies.end(),
                    [](const BatchedCopy &copy) { return copy.rows.count == 1 && !copy.failed; });
    const bool fits = batch.copies.size() > 1 && batch.copies.size() <= kCopiesPerBatch;
    if (fits && all_single && driver->has_memcpy_batch()) {
        CUdeviceptr destinations[kCopiesPerBatch];
        CUdeviceptr sources[kCopiesPerBatch];
        size_t lengths[kCopiesPerBatch];
        for (size_t i = 0; i < batch.copies.size(); ++i) {
            destinations[i] = device_pointer(batch.copies[i].destination);
            sources[i] = device_pointer(batch.copies[i].source);
            lengths[i] = batch.copies[i].length;
        }
        const CUresult result = in_context(handle, context.life.id, [&] {
            return driver->memcpy_batch(destinations, sources, lengths, batch.copies.size(),
                                        stream.handle);
        });
        if (result == CUDA_SUCCESS) {
            return true;
        }
        // One by one: the driver does not say which of them it refused, and whether others run.
        in_context(handle, context.life.id,
                   [&] { return driver->stream_synchronize(stream.handle); });
    }
    bool runs = false;
    for (BatchedCopy &copy : batch.copies) {
        if (copy.failed) {
            continue;
        }
        const CUresult result = submit_copy(handle, context, stream, copy);
        copy.failed = result != CUDA_SUCCESS;
        runs |= !copy.failed;
        if (copy.failed) {
            log_copy_failure("cuMemcpyAsync", copy.length, result);
        }
    }
    return runs;
}

/** What may wait no longer than the call in which it was started. */
void CopyEngine::submit_joint() {
    has_joint_ = false;
    for (auto &[handle, context] : contexts_) {
        for (Stream &stream : context.streams) {
            if (stream.collected && stream.collected->joint_bytes != 0) {
                // For want of memory it waits for the next progress().
                as_possible([&, at = handle, in = &context] { submit_collected(at, *in, stream); });
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
        auto &[handle, context] = *next;
        const size_t before = under_way_;
        if (contexts_are_watched() && is_busy(context) &&
            look_at(handle, context.life) == Look::ended) {
            next = drop_ended(next);
            count += static_cast<unsigned>(before - under_way_);
            continue;
        }
        count += advance_given(handle, context);
        count += advance_cancellable(context);
        for (Stream &stream : context.streams) {
            if (!stream.submitted.empty() || stream.collected) {
                relax_capture();
                count += advance(handle, context, stream);
            }
        }
        ++next;
    }
    return count;
}

/** Something is under way in it. */
bool CopyEngine::is_busy(const Context &context) {
    return !context.given.empty() || (context.cancellable && !context.cancellable->idle()) ||
           std::any_of(
               std::begin(context.streams), std::end(context.streams),
               [](const Stream &stream) { return !stream.submitted.empty() || stream.collected; });
}

unsigned CopyEngine::advance(CUcontext handle, Context &context, Stream &stream) {
    const CudaDriver *driver = CudaDriver::get();
    unsigned count = 0;
    while (!stream.submitted.empty()) {
        const std::shared_ptr<CopyBatch> &batch = stream.submitted.front();
        CUresult result =
            in_context(handle, context.life.id, [&] { return driver->event_query(batch->event); });
        if (result == CUDA_ERROR_NOT_READY) {
            break;
        }
        if (result != CUDA_SUCCESS) {
            // The end of the copies is not known; after this they do not run any more.
            result = in_context(handle, context.life.id,
                                [&] { return driver->stream_synchronize(stream.handle); });
        }
        if (result != CUDA_SUCCESS) {
            log_copy_failure("cuEventQuery", batch->copies.front().length, result);
            batch->lose();
        }
        context.free_events.push_back(batch->event);
        end(*batch);
        stream.last_done = std::move(stream.submitted.front());
        stream.submitted.pop_front();
        ++count;
    }
    if (stream.collected && stream.submitted.size() < kBatchesInFlight) {
        submit_collected(handle, context, stream);
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
    }
    return status;
}

}  // namespace gpushm
