// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine: copies that the GPU makes by kernels of ours, the standby kernel and the kernel of
// CancellableCopies.
#include "core/base/no_throw.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/copy/reachability.hpp"
#include "core/copy/standby_policy.hpp"
#include "core/memory/page_residency.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "core/standby/standby_registry.hpp"

#include <algorithm>
#include <utility>

namespace gpushm {
namespace {

// Bytes that StagedCopies copies, piece by piece, while the GPU turns to another process: 0.14 ms.
constexpr size_t kLongestThroughHost = 512u << 10;

}  // namespace

// ---------------------------------------------------------------- the standby kernel

/** Whether kernels of the context reach one side. `managed_too`: managed memory counts where
 * kernels may read it in its place; pages that lie elsewhere come to them one by one. */
bool CopyEngine::kernels_reach_side(const CopyJob &job, const Means &means, CopyOperand &side,
                                    size_t pitch, bool managed_too) {
    const size_t extent = job.extent(pitch);
    if (side.pinned_by_us) {
        return SegmentTable::instance().contains(static_cast<const char *>(side.address()) +
                                                 extent - 1);
    }
    const MemoryInfo &info = side.info();
    const CUdevice device = job.gpu_side.device;
    return managed_too && info.kind == MemoryKind::managed
               ? covers(info, side.address(), extent) && has_concurrent_access(device)
               : kernels_reach(info, side.address(), extent, device, means.context->handle());
}

bool CopyEngine::kernels_reach_both(const CopyJob &job, Means &means, bool managed_too) {
    CopyOperands &sides = means.operands;
    return kernels_reach_side(job, means, sides.destination, job.rows.destination_pitch,
                              managed_too) &&
           kernels_reach_side(job, means, sides.source, job.rows.source_pitch, managed_too);
}

namespace {

/** The bytes that count for the limit. */
size_t bytes_of_transfer(const CopyJob &job) {
    return std::max(job.bytes(), job.transfer_bytes);
}

}  // namespace

/** Whether the kernel copies the transfer of `job` more quickly, if nothing else is under way, and
 * reaches both sides. The pieces of a transfer that is too long as a whole are not for it: a
 * program that sends only long messages never has the kernel. */
bool CopyEngine::is_for_standby(const CopyJob &job, Means &means, bool from_host) const {
    const StandbyKernel *standby = means.context->standby.get();
    return standby != nullptr && standby->takes(job.rows, job.length) &&
           bytes_of_transfer(job) <= standby_limit(job, {standby->is_cluster(), from_host, true}) &&
           (job.in_reach || kernels_reach_both(job, means, true));
}

bool CopyEngine::is_left_to_standby(const CopyJob &job) {
    if (!StandbyKernels::wanted()) {
        return false;
    }
    Scope scope(*this);
    Means means(job);
    if (!find_means(job, &means)) {
        return false;
    }
    const bool from_host = is_from_host(job, means.operands.source);
    if (!is_for_standby(job, means, from_host)) {
        return false;
    }
    const StandbyKernel &standby = *means.context->standby;
    return standby.alive() &&
           bytes_of_transfer(job) <= standby_limit(job, {standby.is_cluster(), from_host, idle()});
}

void CopyEngine::note_for_standby(const CopyJob &job, Means &means) const {
    if (is_for_standby(job, means, is_from_host(job, means.operands.source))) {
        means.context->standby->note_copy();
    }
}

void CopyEngine::note_for_standby(const std::vector<CopyJob> &jobs) {
    Scope scope(*this);
    for (const CopyJob &job : jobs) {
        Means means(job);
        if (find_means(job, &means)) {
            note_for_standby(job, means);
        }
    }
}

/** False: the copy engine is to make the copy. */
bool CopyEngine::give_to_standby(const CopyJob &job, Means &means, StandbyTicket *ticket) {
    const bool source_pinned = means.operands.source.pinned_by_us;
    const bool from_host = is_from_host(job, means.operands.source);
    if (!is_for_standby(job, means, from_host)) {
        return false;
    }
    StandbyKernel &standby = *means.context->standby;
    const bool is_managed = job.gpu_side.kind == MemoryKind::managed;
    standby.note_copy(is_managed);
    if (bytes_of_transfer(job) > standby_limit(job, {standby.is_cluster(), from_host, idle()})) {
        return false;
    }
    if (is_managed && !idle() && !standby.alive()) {
        // Several copies of managed memory cost more than a launch:
        // doc/decisions/standby-when-launched.md.
        StandbyKernels::instance().tend(StandbyKernel::Moment::costly);
    }
    StandbyJob copy = {job.destination, job.source, job.length};
    copy.cpu_may_read = source_pinned;
    copy.cpu_may_write = means.operands.destination.pinned_by_us;
    copy.to_own_gpu =
        is_of_gpu(job.gpu_side, job.destination, job.extent(job.rows.destination_pitch));
    copy.rows = job.rows;
    if (source_pinned && job.mailbox != nullptr && job.rows.count == 1) {
        // The source is payload of a message: then all slots of its mailbox are in reach.
        const MessagePayload payload = job.mailbox->payload_at(job.source, job.length);
        copy.message = payload.message;
        copy.next = job.mailbox->payload_behind(payload);
    }
    return standby.give(copy, ticket);
}

/** The standby kernel has taken the copy. Where memory is too short to note that, waits for it. */
Status CopyEngine::note_or_await(const CopyJob &job, Means &means, const StandbyTicket &standby,
                                 CopyTicket *ticket) {
    GpuContext &context = *means.context;
    const bool is_noted = as_possible([&] {
        const std::shared_ptr<CopyBatch> batch = new_batch(context.last_served);
        batch->copies.push_back(batched(job, means.operands));
        batch->bytes = job.bytes();
        batch->standby = standby;
        batch->direction = job.direction;
        batch->gpu_side = covers(job.gpu_side, job.source, 1) ? job.source : job.destination;
        batch->gpu_side_id = job.gpu_side.buffer_id;
        context.given.push_back(batch);
        ++under_way_;
        *ticket = {batch, 0};
    });
    if (is_noted) {
        return Status::in_progress;
    }
    return context.standby->await(standby) == StandbyKernel::State::served ? Status::ok
                                                                           : Status::gpu_error;
}

/** Copies what the standby kernel did not copy. */
void CopyEngine::submit_unserved(GpuContext &context, const std::shared_ptr<CopyBatch> &batch) {
    if (context.kernels != nullptr && batch->is_within_gpu()) {
        relax_capture();
        if (context.start_cancellable(batch, false)) {
            return;
        }
    }
    if (CopyStream *stream = find_stream(context, batch->bytes, batch->direction)) {
        submit(context, *stream, batch);
    } else {
        batch->fail();
        end(*batch);
    }
}

unsigned CopyEngine::advance_given(GpuContext &context) {
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
        } else if (batch->has_lost_memory() ||
                   !as_possible([&] { submit_unserved(context, batch); })) {
            batch->fail();
            end(*batch);
        }
    }
    return count;
}

// ---------------------------------------------------------------- copies within a GPU

namespace {

bool has_copy_kernel(const GpuContext &context) {
    return context.kernels != nullptr &&
           context.kernels->function(Kernel::cancellable_copy) != nullptr;
}

}  // namespace

bool CopyEngine::can_copy_within_gpu(const MemoryInfo &gpu_side, const void *source,
                                     size_t length) {
    Scope scope(*this);
    const CopyJob job = {const_cast<void *>(source), source, length, gpu_side,
                         CopyDirection::to_gpu};
    Means means(job);
    if (!find_means(job, &means) || !has_copy_kernel(*means.context)) {
        return false;
    }
    relax_capture();
    return means.context->has_cancellable() &&
           kernels_reach_side(job, means, means.operands.source, 0, true);
}

/** Whether CancellableCopies can make the copy. */
bool CopyEngine::is_within_gpu(const CopyJob &job, Means &means) {
    CopyOperands &operands = means.operands;
    if (job.other_side == OtherSide::elsewhere || job.direction != CopyDirection::to_gpu ||
        job.rows.count > 1 || job.from_host || operands.source.pinned_by_us ||
        operands.destination.pinned_by_us || !has_copy_kernel(*means.context)) {
        return false;
    }
    return job.other_side == OtherSide::same_gpu ||
           (is_of_gpu(operands.destination.info(), job.destination, job.length) &&
            is_of_same_gpu(operands.destination.info(), operands.source.info(), job.source,
                           job.length));
}

/** Whether a kernel that copies would wait longer for those of another process than the way through
 * host memory takes. */
bool CopyEngine::waits_for_kernels(const CopyJob &job) {
    return !job.has_turn && job.bytes() <= kLongestThroughHost &&
           !GpuSharing::instance().may_run_kernels(job.gpu_side.device);
}

/** False: the copy is for the driver. */
bool CopyEngine::start_within_gpu(const CopyJob &job, Means &means, CopyTicket *ticket) {
    if (!is_within_gpu(job, means)) {
        return false;
    }
    const std::shared_ptr<CopyBatch> batch = new_batch(means.context->last_cancellable);
    batch->copies.push_back(batched(job, means.operands));
    relax_capture();
    if (!means.context->start_cancellable(batch, waits_for_kernels(job))) {
        return false;
    }
    ++under_way_;
    *ticket = {batch, 0};
    return true;
}

unsigned CopyEngine::advance_cancellable(GpuContext &context) {
    if (!context.cancellable || context.cancellable->idle()) {
        return 0;
    }
    relax_capture();
    // Where memory is short the next call does what is left.
    as_possible([&] { context.cancellable->advance(&ended_); });
    if (!ended_.empty()) {
        context.last_cancellable = ended_.back();
    }
    const auto count = static_cast<unsigned>(ended_.size());
    for (const std::shared_ptr<CopyBatch> &batch : ended_) {
        end(*batch);
    }
    ended_.clear();
    return count;
}

}  // namespace gpushm
