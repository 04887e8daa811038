// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/direct_transfers.hpp"

#include "core/base/addresses.hpp"
#include "core/copy/reachability.hpp"
#include "core/copy/reduced_arrivals.hpp"
#include "core/copy/standby_policy.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/registration_table.hpp"
#include "core/memory/memory_query.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "core/transport/joint_copies.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

// Seconds that a message takes longer through the ring (doc/decisions/direct-copies.md): one more
// copy and its start, behind a wait for a kernel of the program; and the bandwidth of the pipeline
// against the peer copy, or of a CPU against the GPU's link.
constexpr double kStagedStart = 10e-6;
constexpr double kStagedSecondsPerByte = 1 / 45e9;
constexpr double kHostSecondsPerByte = 1 / 12e9 - 1 / 53e9;
// What a kernel waits for the GPU to turn to its process (doc/decisions/standby-time-slices.md).
constexpr double kTimeSlice = 140e-6;

// Bytes. The CPU copies shorter host memory from or to the ring before a copy through the mapping
// begins (doc/decisions/direct-copies.md).
constexpr uint64_t kSmallestHostCopy = 64u << 10;

double seconds_by_ring(bool host, uint64_t length) {
    const auto bytes = static_cast<double>(length);
    return host ? bytes * kHostSecondsPerByte : kStagedStart + bytes * kStagedSecondsPerByte;
}

/** Whether the way through the ring, whose copies are made by copy engines, is shorter than what a
 * copy within the GPU, which a kernel makes, waits for kernels of other processes. */
bool is_shorter_than_a_turn(uint64_t length) {
    return seconds_by_ring(false, length) < kTimeSlice;
}

StridedRows in_one_row(uint64_t address, uint64_t length) {
    return {address, length, 1, length};
}

/** One piece counts as rows of the other side's length. */
void split_alike(StridedRows *one, StridedRows *other) {
    if (one->count < other->count) {
        std::swap(one, other);
    }
    if (other->count == 1) {
        *other = {other->address, one->length, one->count, one->length};
    }
}

/** What a get writes: the rows behind its block, if the other side's are as long or it has none. */
StridedRows destination_of(const Operation &operation, const StridedRows &source) {
    const std::optional<StridedRows> rows =
        RowViews::instance().destination(operation.local, operation.length);
    const bool alike =
        rows && (source.count == 1 || rows->count == 1 || source.length == rows->length);
    return alike ? *rows : in_one_row(to_number(operation.local), operation.length);
}

/** Whether this process copies in both directions for a pair that shares a GPU. */
bool has_precedence(const BufferKey &buffer) {
    return process_cookie().low <= buffer.owner;
}

}  // namespace

DirectTransfers::DirectTransfers(PeerChannel &channel, Operations &operations, PeerMemory &memory)
    : channel_(channel),
      operations_(operations),
      memory_(memory),
      writer_(channel.mailbox.direct_writes(), channel.mailbox.registrations()) {}

DirectTransfers::~DirectTransfers() {
    if (is_counted_) {
        channel_.port.gpu_turn().count_peer(-1);
    }
}

// ---------------------------------------------------------------- who copies, and by what

bool DirectTransfers::same_gpu(const BufferKey &buffer, const MemoryInfo &local_info) const {
    return local_info.needs_gpu() && buffer.device != 0 &&
           device_identity(local_info.device) == buffer.device;
}

bool DirectTransfers::leaves_to_peer(const BufferKey &buffer, const MemoryInfo &local_info) {
    if (has_precedence(buffer)) {
        return false;
    }
    if (!gpu_left_to_peer_) {
        gpu_left_to_peer_ = true;
        StandbyKernels::instance().leave_to_peer(channel_.port.engine().context_of(local_info),
                                                 local_info.device);
    }
    return true;
}

/** Of a pair that shares its GPU. */
GpuTurn &DirectTransfers::turn_of(const MemoryInfo &local_info) {
    GpuTurn &turn = channel_.port.gpu_turn();
    if (!is_counted_ && channel_.peer.pid != getpid()) {
        is_counted_ = true;
        turn.count_peer(1);
    }
    turn.set_contended(GpuSharing::instance().others_compute(local_info.device));
    return turn;
}

bool DirectTransfers::has_turn(const MemoryInfo &local_info) {
    const GpuTurn &turn = turn_of(local_info);
    return turn.counts() && turn.is_own();
}

bool DirectTransfers::copies_for_both(const BufferKey &buffer, const MemoryInfo &local_info,
                                      uint64_t length) {
    if (!same_gpu(buffer, local_info)) {
        return false;
    }
    const bool is_short = is_shorter_than_a_turn(length);
    const GpuTurn &turn = turn_of(local_info);
    if (is_short && turn.counts()) {
        return turn.is_own();
    }
    return !leaves_to_peer(buffer, local_info) &&
           (!is_short || GpuSharing::instance().may_run_kernels(local_info.device));
}

bool DirectTransfers::is_for_push(const MemoryInfo &info, const void *address,
                                  size_t length) const {
    return pushes_host_memory_ && length >= kSmallestHostCopy &&
           (info.kind == MemoryKind::pinned ||
            HostRegistrationCache::instance().has_locked(address, length));
}

/** Whether a transfer that this process starts is its to copy, and may touch the memory. Whether
 * the peer's memory may be touched is the peer's to check, by what it lets this process map. */
bool DirectTransfers::may_copy(const RemoteMemory &remote, const MemoryInfo &local_info,
                               uint64_t length) {
    const BufferKey &buffer = remote.buffer;
    if (!channel_.is_current(remote)) {
        return false;
    }
    if (buffer.owner == process_cookie().low) {
        return RegistrationTable::instance().covers(remote.registration, remote.address, length);
    }
    return !same_gpu(buffer, local_info) || copies_for_both(buffer, local_info, length);
}

/** Where the peer's [address, +extent), of which `length` bytes are copied, lies for a copy from or
 * to `local`. */
DirectTransfers::View DirectTransfers::view_remote(const BufferKey &buffer, uint64_t address,
                                                   uint64_t extent, const LocalMemory &local,
                                                   uint64_t length, bool is_new) {
    View view;
    const bool own = buffer.owner == process_cookie().low;
    const bool from_host = !local.on_gpu;
    if (!channel_.port.config().peer_mapping || CudaDriver::get() == nullptr ||
        !(own ? buffer.buffer_id != 0 : buffer.can_be_mapped()) ||
        (from_host && length < kSmallestHostCopy) || !memory_.owns(buffer)) {
        return view;
    }
    CopyEngine &engine = channel_.port.engine();
    // None is made for a process with host memory.
    CUcontext context =
        local.info.needs_gpu() ? engine.context_of(local.info) : engine.context_near(buffer.device);
    if (context == nullptr) {
        return view;
    }
    view.one_gpu = same_gpu(buffer, local.info);
    view.has_turn = view.one_gpu && !own && has_turn(local.info);
    view.is_new = is_new;
    view.gpu_side = local.info;
    view.gpu_side.kind = MemoryKind::device;
    view.gpu_side.context = context;
    const double seconds = seconds_by_ring(from_host, length);
    if (from_host) {
        view.pin = HostRegistrationCache::instance().acquire(local.info, local.address,
                                                             local.extent, context, seconds);
    }
    const bool ready = !from_host || view.pin != nullptr;
    if (own) {
        view.address = ready ? to_pointer(address) : nullptr;
    } else {
        view.mapping = memory_.find(buffer, {context, seconds, ready, is_new});
        view.saved_seconds = seconds;
        view.address =
            view.mapping && ready ? view.mapping->locate(buffer, address, extent) : nullptr;
    }
    describe_reach(&view, buffer, local, extent, length);
    return view;
}

/** Which kernels may copy. A kernel that was cancelled may still read its source, be that here or
 * there. The end of a mapping by CUDA IPC waits for it, too; memory that is imported by a file
 * descriptor may be unmapped before (DescriptorMapping). */
void DirectTransfers::describe_reach(View *view, const BufferKey &buffer, const LocalMemory &local,
                                     uint64_t extent, uint64_t length) {
    const bool own = buffer.owner == process_cookie().low;
    const bool pinned_by_us = view->pin.use_count() != 0;
    const bool may_stay =
        local.info.is_of_mem_alloc() && (own || buffer.sharing == BufferKey::Sharing::ipc_handle);
    const bool kernel_may_copy =
        length <= (view->one_gpu ? kMaxStandbyBytes : kMaxStandbyElsewhere) || extent > length ||
        local.extent > length || (view->one_gpu && may_stay);
    view->in_reach = view->mapping != nullptr && kernel_may_copy &&
                     (pinned_by_us ? HostRegistrationCache::is_mapped_for_kernels(view->pin)
                                   : kernels_reach(local.info, local.address, local.extent,
                                                   local.info.device, view->gpu_side.context));
    view->other_side = !view->one_gpu || !may_stay ? OtherSide::elsewhere
                       : view->in_reach            ? OtherSide::same_gpu
                                                   : OtherSide::unknown;
}

bool DirectTransfers::may_replace_copy(const GetRequest &request, bool by_gpu) {
    if (!by_gpu && request.length >= kSmallestHostCopy) {
        pushes_host_memory_ = false;  // until plan_push() finds otherwise
    }
    return request.shared.exists() && (by_gpu || request.length >= kSmallestHostCopy);
}

// ---------------------------------------------------------------- plans

std::optional<DirectTransfers::Plan> DirectTransfers::plan_get(const Operation &operation,
                                                               bool is_new) {
    const RemoteMemory &remote = operation.remote;
    if (!may_copy(remote, operation.local_info, operation.length) ||
        (remote.rows.length != 0 && remote.rows.bytes() != operation.length)) {
        return std::nullopt;
    }
    StridedRows source =
        remote.rows.length != 0 ? remote.rows : in_one_row(remote.address, operation.length);
    StridedRows destination = destination_of(operation, source);
    const bool to_rows = to_pointer(destination.address) != operation.local;
    const LocalMemory local = {
        to_pointer(destination.address),
        to_rows ? query_memory(to_pointer(destination.address)) : operation.local_info,
        operation.local_on_gpu, destination.extent()};
    View view = view_remote(remote.buffer, source.address, source.extent(), local, operation.length,
                            is_new);
    if (view.address == nullptr) {
        return std::nullopt;
    }
    source.address = to_number(view.address);
    split_alike(&source, &destination);
    DirectCopy copy = {DirectCopy::Purpose::get, {}};
    copy.filled = to_rows ? operation.local : nullptr;
    copy.transfer.owner = operation.owner;
    copy.transfer.total = operation.length;
    return Plan{std::move(copy), destination, source, std::move(view)};
}

std::optional<DirectTransfers::Plan> DirectTransfers::plan_put(const ChunkedTransfer &transfer,
                                                               bool is_new) {
    if (!may_copy(transfer.remote, transfer.source_info, transfer.total)) {
        return std::nullopt;
    }
    View view = view_remote(transfer.remote.buffer, transfer.remote.address, transfer.total,
                            transfer.local(), transfer.total, is_new);
    if (view.address == nullptr) {
        return std::nullopt;
    }
    DirectCopy copy = {DirectCopy::Purpose::put, transfer};
    copy.write = writer_.begin(transfer.remote.registration);
    if (copy.write == nullptr) {
        return std::nullopt;
    }
    return Plan{std::move(copy), in_one_row(to_number(view.address), transfer.total),
                in_one_row(to_number(transfer.source), transfer.total), std::move(view)};
}

std::optional<DirectTransfers::Plan> DirectTransfers::plan_push(const ChunkedTransfer &transfer,
                                                                const GetRequest &request) {
    const BufferKey &buffer = request.buffer;
    if (!transfer.source_info.needs_gpu() && transfer.total >= kSmallestHostCopy) {
        pushes_host_memory_ = false;
    }
    if (request.shared.index >= kSharedTransfers || !buffer.can_be_mapped() ||
        buffer.owner == process_cookie().low) {
        return std::nullopt;
    }
    const bool peer_can_copy = transfer.source_info.kind == MemoryKind::device &&
                               make_buffer_key(transfer.source_info).can_be_mapped();
    if (peer_can_copy && !copies_for_both(buffer, transfer.source_info, transfer.total)) {
        return std::nullopt;
    }
    const std::optional<RowViews::Source> rows =
        RowViews::instance().source(transfer.source, transfer.total);
    StridedRows source = rows ? rows->rows : in_one_row(to_number(transfer.source), transfer.total);
    LocalMemory local = transfer.local();
    if (rows) {
        local.address = to_pointer(source.address);
        local.info = query_memory(local.address);
        local.extent = source.extent();
    }
    View view =
        view_remote(buffer, request.destination, transfer.total, local, transfer.total, true);
    pushes_host_memory_ |= view.address != nullptr && view.pin != nullptr;
    if (view.address == nullptr) {
        return std::nullopt;
    }
    DirectCopy copy = {DirectCopy::Purpose::push, transfer};
    copy.shared = &channel_.mailbox.shared_transfer(request.shared.index);
    copy.shared_id = request.shared.id;
    copy.reading = rows ? rows->reading : nullptr;
    StridedRows destination = in_one_row(to_number(view.address), transfer.total);
    split_alike(&source, &destination);
    return Plan{std::move(copy), destination, source, std::move(view)};
}

// ---------------------------------------------------------------- start

namespace {

struct GiveBack {
    void operator()(const DirectCopy *copy) const { copy->shared->finish(copy->shared_id, false); }
};

/** The claim of a push that has not begun: given back unless it is released. */
using Claim = std::unique_ptr<const DirectCopy, GiveBack>;

/** The direction in which bytes cross the GPU's link decides the stream. */
CopyJob describe_job(const DirectTransfers::Plan &plan, bool is_idle) {
    const bool is_get = plan.copy.purpose == DirectCopy::Purpose::get;
    const bool with_host = plan.view.pin != nullptr;
    const StridedRows &destination = plan.destination;
    CopyJob job = {to_pointer(destination.address),
                   to_pointer(plan.source.address),
                   destination.length,
                   plan.view.gpu_side,
                   is_get && with_host ? CopyDirection::from_gpu : CopyDirection::to_gpu,
                   plan.view.in_reach,
                   {destination.count, destination.pitch, plan.source.pitch},
                   with_host && !is_get};
    job.other_side = plan.view.other_side;
    job.has_turn = plan.view.has_turn;
    job.peer_extent =
        with_host || plan.view.one_gpu ? 0 : (is_get ? plan.source : destination).extent();
    job.to_host = with_host && is_get;
    job.urgent = is_idle;
    job.joint_bytes = joint_bytes_of_direct_copy(destination.length, destination.count,
                                                 plan.view.one_gpu, with_host);
    return job;
}

/** The message that may be reduced in the place of the copy. Empty: there is none, or a kernel
 * cannot read the peer's numbers. */
std::optional<FoundArrival> find_arrival(const DirectTransfers::Plan &plan) {
    const StridedRows &destination = plan.destination;
    if (plan.copy.purpose != DirectCopy::Purpose::get || plan.view.mapping == nullptr ||
        destination.count != 1) {
        return std::nullopt;
    }
    const std::optional<FoundArrival> found =
        ReducedArrivals::instance().find(to_pointer(destination.address), destination.length);
    const bool can_read =
        found && is_aligned(to_pointer(plan.source.address), found->reduction.type);
    return can_read ? found : std::nullopt;
}

ReductionParameters parameters_of(const ArrivalReduction &reduction, const CopyJob &job) {
    const uint64_t own = to_number(reduction.own);
    const uint64_t arriving = to_number(job.source);
    return {to_number(job.destination),
            reduction.own_is_first ? own : arriving,
            reduction.own_is_first ? arriving : own,
            reduction.count,
            reduction.operation,
            reduction.type};
}

/** False: nothing was started. */
bool start_copy(CopyEngine &engine, const CopyJob &job, const std::optional<FoundArrival> &arrival,
                DirectCopy *copy) {
    if (arrival &&
        engine.start_reduction(job, parameters_of(arrival->reduction, job), &copy->ticket)) {
        copy->arrival = arrival->id;
        return true;
    }
    std::vector<CopyTicket> tickets;
    if (job.rows.count > 1 && !engine.is_left_to_standby(job) &&
        engine.start_by_kernel({job}, &tickets)) {
        copy->ticket = tickets.front();
        return true;
    }
    return engine.start(job, &copy->ticket) != Status::gpu_error;
}

}  // namespace

bool DirectTransfers::start(Plan plan) {
    CopyEngine &engine = channel_.port.engine();
    const CopyJob job = describe_job(plan, engine.idle());
    const std::optional<FoundArrival> arrival = find_arrival(plan);
    const View &view = plan.view;
    plan.copy.mapping = view.mapping;
    plan.copy.pin = view.pin;
    std::list<DirectCopy> started;  // when the copy has begun, nothing can fail any more
    started.push_back(std::move(plan.copy));
    DirectCopy &copy = started.back();
    const bool is_push = copy.purpose == DirectCopy::Purpose::push;
    // Without a claim the peer has given the transfer up.
    if (is_push && !copy.shared->claim_last(copy.shared_id)) {
        return false;
    }
    Claim claim(is_push ? &copy : nullptr);
    if (!start_copy(engine, job, arrival, &copy)) {
        return false;
    }
    (void)claim.release();
    if (view.has_turn) {
        channel_.port.gpu_turn().keep();
    }
    if (!is_push) {
        operations_.count_part(copy.transfer.id, 1);
    }
    copies_.splice(copies_.end(), started);
    if (view.mapping != nullptr) {
        view.mapping->note_use(view.saved_seconds, view.is_new);
    }
    return true;
}

// ---------------------------------------------------------------- end

std::list<DirectCopy> DirectTransfers::take_ended() {
    std::list<DirectCopy> ended;
    for (auto copy = copies_.begin(); copy != copies_.end();) {
        const auto next = std::next(copy);
        copy->status = channel_.port.engine().poll(&copy->ticket);
        if (copy->status != Status::in_progress) {
            ended.splice(ended.end(), copies_, copy);
        }
        copy = next;
    }
    for (DirectCopy &copy : ended) {
        const bool is_push = copy.purpose == DirectCopy::Purpose::push;
        if (is_push && source_is_gone(copy.transfer, channel_)) {
            copy.status = Status::gpu_error;
        }
        if (copy.shared != nullptr) {
            copy.shared->finish(copy.shared_id, copy.status == Status::ok);
        }
        copy.write.reset();  // before anybody is told of the end of the transfer
        if (!is_push) {
            operations_.count_part(copy.transfer.id, -1);
        }
    }
    return ended;
}

void DirectTransfers::end_own_pushes() {
    CopyEngine &engine = channel_.port.engine();
    for (DirectCopy &copy : copies_) {
        if (copy.shared == nullptr) {
            continue;
        }
        const CopyEngine::Scope scope(engine);
        engine.progress();
        CopyTicket ticket = copy.ticket;  // how it ended is still asked for
        const Status status = engine.poll(&ticket);
        if (status != Status::in_progress) {
            copy.shared->finish(copy.shared_id,
                                status == Status::ok && !source_is_gone(copy.transfer, channel_));
            copy.shared = nullptr;
        }
    }
}

void DirectTransfers::end_put_writes() {
    for (DirectCopy &copy : copies_) {
        if (copy.write != nullptr) {
            CopyTicket ticket = copy.ticket;  // how it ended is still asked for
            channel_.port.engine().wait(&ticket);
            copy.write.reset();
        }
    }
}

void DirectTransfers::wait_for_copies(const void *owner) {
    for (DirectCopy &copy : copies_) {
        if (owner == nullptr || copy.transfer.owner == owner) {
            CopyTicket ticket = copy.ticket;  // how it ended is still asked for
            channel_.port.engine().wait(&ticket);
        }
    }
}

void DirectTransfers::cancel(Operations::Cancellation &cancellation) {
    copies_.remove_if([&](const DirectCopy &copy) {
        const bool owned = copy.transfer.owner == cancellation.owner() &&
                           copy.purpose != DirectCopy::Purpose::push;
        if (owned) {
            cancellation.erase(copy.transfer.id);
        }
        return owned;
    });
}

void DirectTransfers::drop_pushes() {
    copies_.remove_if([](const DirectCopy &copy) {
        if (copy.shared != nullptr) {
            copy.shared->finish(copy.shared_id, false);
        }
        return copy.purpose == DirectCopy::Purpose::push;
    });
}

}  // namespace gpushm
