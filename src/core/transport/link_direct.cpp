// SPDX-License-Identifier: BSD-3-Clause
// Transfers of a link by a single copy: between memory of this process and memory of the peer that
// is mapped here (IpcMappingCache). Who copies:
//
//   device -> device, two GPUs   the receiver pulls (get), or the sender pushes (put)
//   device -> device, one GPU    of two processes that share a GPU each waits for a time slice of
//                                it when they take turns to copy (147 us on an H200), so one of
//                                them does every copy of the pair: it pulls, or pushes when asked
//   device -> host               the receiver pulls, if its memory is page-locked
//   host -> device               the sender pushes when asked, if its memory is page-locked
//
// What cannot be done so goes through the staging ring (link_transfers.cpp), as does every message
// until a mapping and page-locking have paid (IpcMappingCache, HostRegistrationCache), and every
// copy that fails.
#include "core/transport/link.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/reachability.hpp"
#include "core/copy/standby_policy.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/mapping/memory_export.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/registration_table.hpp"
#include "core/shm/descriptor_channel.hpp"
#include "core/transport/port.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

// What a message takes longer through the ring, measured on two H200: one more copy and its start
// (10 us in the step of a program, behind a wait for its kernel), and the bandwidth of the pipeline
// against that of the peer copy, or of a CPU against that of the GPU's link.
constexpr double kStagedStart = 10e-6;
constexpr double kStagedSecondsPerByte = 1 / 45e9;
constexpr double kHostSecondsPerByte = 1 / 12e9 - 1 / 53e9;
constexpr double kTimeSlice = 140e-6;

// Copies that the driver is given together do not wait for one another's start: 4 MiB between two
// H100 take 14.7 us each one by one, 12.3 by fours, 512 KiB 4.7 and 2.6, from and to the host 12.8
// and 10.8. So many bytes take 40 to 50 us: of a window messages in the middle end so much later,
// and all of them together sooner.
constexpr size_t kLongestJointCopy = 4u << 20;
constexpr size_t kJointBytesOfGpus = 16u << 20;
constexpr size_t kJointBytesOfHost = 2u << 20;

unsigned char *pointer(uint64_t address) {
    return reinterpret_cast<unsigned char *>(address);
}

double missed_seconds(bool host, bool one_gpu, uint64_t length) {
    const auto bytes = static_cast<double>(length);
    return host      ? bytes * kHostSecondsPerByte
           : one_gpu ? kTimeSlice
                     : kStagedStart + bytes * kStagedSecondsPerByte;
}

StridedRows in_one_row(uint64_t address, uint64_t length) {
    return {address, length, 1, length};
}

/** What lies in one piece is taken for rows as long as the other side's. */
void split_alike(StridedRows *one, StridedRows *other) {
    if (one->count < other->count) {
        std::swap(one, other);
    }
    if (other->count == 1) {
        *other = {other->address, one->length, one->count, one->length};
    }
}

}  // namespace

// ---------------------------------------------------------------- who copies, and by what

bool Link::same_gpu(const BufferKey &buffer, const MemoryInfo &local_info) const {
    return local_info.needs_gpu() && buffer.device != 0 &&
           device_identity(local_info.device) == buffer.device;
}

/** Whether this process copies in both directions for a pair that shares a GPU. */
bool Link::copies_for_both(const BufferKey &buffer) const {
    return process_cookie().low <= buffer.owner;
}

/** Whether host memory most likely goes to a peer's GPU by a copy of ours. */
bool Link::is_for_push(const MemoryInfo &info, const void *address, size_t length) const {
    return pushes_host_memory_ && length >= kSmallestHostCopy &&
           (info.kind == MemoryKind::pinned ||
            HostRegistrationCache::instance().has_locked(address, length));
}

/** The context whose GPU copies between local memory and `buffer`. A process with host memory may
 * have none: then null, for none is made. */
CUcontext Link::context_of_copy(const BufferKey &buffer, const MemoryInfo &local_info) {
    if (local_info.needs_gpu()) {
        return port_.engine().context_of(local_info);
    }
    return port_.engine().context_near(buffer.device);
}

/** Where the peer's [address, +extent), of which `length` bytes are copied, lies for a copy from or
 * to `local`. `is_new`: the message did not wait for a mapping. */
Link::RemoteView Link::view_remote(const BufferKey &buffer, uint64_t address, uint64_t extent,
                                   const LocalSide &local, uint64_t length, bool is_new) {
    RemoteView view;
    const bool own = buffer.owner == process_cookie().low;
    const bool from_host = !local.on_gpu;
    if (!port_.config().peer_mapping || CudaDriver::get() == nullptr ||
        !(own ? buffer.buffer_id != 0 : buffer.can_be_mapped()) ||
        (from_host && length < kSmallestHostCopy) || !is_of_peer(buffer)) {
        return view;
    }
    CUcontext context = context_of_copy(buffer, local.info);
    if (context == nullptr) {
        return view;
    }
    const bool one_gpu = same_gpu(buffer, local.info);
    const double seconds = missed_seconds(from_host, one_gpu, length);
    if (from_host) {
        view.pin = HostRegistrationCache::instance().acquire(local.info, local.address,
                                                             local.extent, context, seconds);
    }
    if (own) {
        view.address = pointer(address);
    } else {
        const bool ready = !from_host || view.pin != nullptr;
        view.mapping = find_mapping(buffer, context, seconds, ready, is_new);
        view.address =
            view.mapping && ready ? view.mapping->locate(buffer, address, extent) : nullptr;
        view.saved_seconds = seconds;
        view.is_new = is_new;
    }
    if (from_host && view.pin == nullptr) {
        view.address = nullptr;
    }
    view.one_gpu = one_gpu;
    view.gpu_side = local.info;
    view.gpu_side.kind = MemoryKind::device;
    view.gpu_side.context = context;
    const bool pinned_by_us = view.pin.use_count() != 0;
    // A kernel that was cancelled may still read its source, be that here or there. The end of a
    // mapping by CUDA IPC waits for it, too; what is imported by a file descriptor may be unmapped
    // before (DescriptorMapping).
    const bool may_stay =
        local.info.is_of_mem_alloc() && (own || buffer.sharing == BufferKey::Sharing::ipc_handle);
    const bool kernel_may_copy = length <= (one_gpu ? kMaxStandbyBytes : kMaxStandbyElsewhere) ||
                                 extent > length || local.extent > length || (one_gpu && may_stay);
    view.in_reach = view.mapping != nullptr && kernel_may_copy &&
                    (pinned_by_us ? HostRegistrationCache::is_mapped_for_kernels(view.pin)
                                  : kernels_reach(local.info, local.address, local.extent,
                                                  local.info.device, context));
    view.other_side = !one_gpu || !may_stay ? OtherSide::elsewhere
                      : view.in_reach       ? OtherSide::same_gpu
                                            : OtherSide::unknown;
    return view;
}

// ---------------------------------------------------------------- start

Link::LocalSide Link::local_side(const Stream &stream) {
    return {stream.source, stream.source_info, stream.by_gpu, stream.total};
}

/** Of `copy.stream.total` bytes between two sides; false when nothing was started. */
bool Link::start_direct(DirectCopy copy, const StridedRows &destination, const StridedRows &source,
                        const RemoteView &view) {
    // The stream is that of the direction in which bytes cross the GPU's link.
    const bool is_get = copy.purpose == DirectCopy::Purpose::get;
    const bool with_host = view.pin != nullptr;
    const CopyDirection direction =
        is_get && with_host ? CopyDirection::from_gpu : CopyDirection::to_gpu;
    CopyJob job = {pointer(destination.address),
                   pointer(source.address),
                   destination.length,
                   view.gpu_side,
                   direction,
                   view.in_reach,
                   {destination.count, destination.pitch, source.pitch},
                   with_host && !is_get};
    job.to_host = with_host && is_get;
    job.other_side = view.other_side;
    job.urgent = port_.engine().idle();
    const bool is_long = destination.count > 1 || destination.length > kLongestJointCopy;
    job.joint_bytes = is_long || view.one_gpu ? 0
                      : with_host             ? kJointBytesOfHost
                                              : kJointBytesOfGpus;
    copy.mapping = view.mapping;
    copy.pin = view.pin;
    std::list<DirectCopy> started;  // when the copy has begun, nothing can fail any more
    started.push_back(std::move(copy));
    DirectCopy &made = started.back();
    std::vector<CopyTicket> tickets;
    if (job.rows.count > 1 && port_.engine().start_by_kernel({job}, &tickets)) {
        made.ticket = tickets.front();
    } else if (port_.engine().start(job, &made.ticket) == Status::gpu_error) {
        return false;
    }
    if (made.purpose != DirectCopy::Purpose::push) {
        count_part(made.stream.transfer_id, 1);
    }
    direct_copies_.splice(direct_copies_.end(), started);
    if (view.mapping != nullptr) {
        view.mapping->note_use(view.saved_seconds, view.is_new);
    }
    return true;
}

/** Whether a transfer that this process starts is its to copy, and may touch the memory. A peer's
 * memory is the peer's to check, by what it maps here. */
bool Link::may_copy(const RemoteMemory &remote, const MemoryInfo &local_info, uint64_t length) {
    const BufferKey &buffer = remote.buffer;
    const bool own = buffer.owner == process_cookie().low;
    if (same_gpu(buffer, local_info) && !copies_for_both(buffer)) {
        if (!gpu_left_to_peer_) {
            gpu_left_to_peer_ = true;
            StandbyKernels::instance().leave_to_peer(port_.engine().context_of(local_info));
        }
        return false;
    }
    return !own ||
           RegistrationTable::instance().covers(remote.registration, remote.address, length);
}

/** What a get writes: the rows behind its block, if the other side's are as long or it has none. */
StridedRows Link::destination_of(const Operation &operation, const StridedRows &source) {
    const std::optional<StridedRows> rows =
        RowViews::instance().destination(operation.local, operation.length);
    const bool alike =
        rows && (source.count == 1 || rows->count == 1 || source.length == rows->length);
    return alike ? *rows
                 : in_one_row(reinterpret_cast<uint64_t>(operation.local), operation.length);
}

/** `is_new`: it did not wait for a mapping. */
bool Link::start_direct_get(uint64_t id, bool is_new) {
    const Operation &operation = operations_[id];
    const RemoteMemory &remote = operation.remote;
    if (!is_current(remote) || !may_copy(remote, operation.local_info, operation.length) ||
        (remote.rows.length != 0 && remote.rows.bytes() != operation.length)) {
        return false;
    }
    StridedRows source =
        remote.rows.length != 0 ? remote.rows : in_one_row(remote.address, operation.length);
    StridedRows destination = destination_of(operation, source);
    const bool to_rows = pointer(destination.address) != operation.local;
    const LocalSide local = {
        pointer(destination.address),
        to_rows ? query_memory(pointer(destination.address)) : operation.local_info,
        operation.local_on_gpu, destination.extent()};
    const RemoteView view = view_remote(remote.buffer, source.address, source.extent(), local,
                                        operation.length, is_new);
    if (view.address == nullptr) {
        return false;
    }
    source.address = reinterpret_cast<uint64_t>(view.address);
    split_alike(&source, &destination);
    DirectCopy copy = {DirectCopy::Purpose::get, {}, {}, nullptr, nullptr};
    copy.filled = to_rows ? operation.local : nullptr;
    copy.stream.transfer_id = id;
    copy.stream.owner = operation.owner;
    copy.stream.total = operation.length;
    return start_direct(std::move(copy), destination, source, view);
}

bool Link::start_direct_put(const Stream &stream, bool is_new) {
    if (!is_current(stream.remote) || !may_copy(stream.remote, stream.source_info, stream.total)) {
        return false;
    }
    const RemoteView view = view_remote(stream.remote.buffer, stream.remote.address, stream.total,
                                        local_side(stream), stream.total, is_new);
    DirectCopy copy = {DirectCopy::Purpose::put, stream, {}, nullptr, nullptr};
    copy.write =
        view.address != nullptr ? writer_.begin(stream.remote.registration) : DirectWriter::Hold();
    return copy.write.exists() &&
           start_direct(std::move(copy),
                        in_one_row(reinterpret_cast<uint64_t>(view.address), stream.total),
                        in_one_row(reinterpret_cast<uint64_t>(stream.source), stream.total), view);
}

/** Answers a get request by a copy into the memory of the peer that it names. Not where the peer
 * would have copied itself if it could: it asks for a mapping of its own then. */
bool Link::start_push(const Stream &stream, const GetRequest &request) {
    const BufferKey &buffer = request.buffer;
    if (!stream.source_info.needs_gpu() && stream.total >= kSmallestHostCopy) {
        pushes_host_memory_ = false;
    }
    if (request.shared.index >= kSharedTransfers || !buffer.can_be_mapped() ||
        buffer.owner == process_cookie().low) {
        return false;
    }
    const bool pull_is_possible = stream.source_info.kind == MemoryKind::device &&
                                  make_buffer_key(stream.source_info).can_be_mapped();
    if (pull_is_possible && !(same_gpu(buffer, stream.source_info) && copies_for_both(buffer))) {
        return false;
    }
    const RemoteView view = view_remote(buffer, request.destination, stream.total,
                                        local_side(stream), stream.total, true);
    pushes_host_memory_ |= view.address != nullptr && view.pin != nullptr;
    // Without a claim the peer has given the transfer up.
    SharedTransfer &shared = mailbox_.shared_transfer(request.shared.index);
    const uint32_t id = request.shared.id;
    if (view.address == nullptr || !shared.claim_last(id)) {
        return false;
    }
    DirectCopy copy = {DirectCopy::Purpose::push, stream, {}, nullptr, nullptr};
    copy.shared = &shared;
    copy.shared_id = id;
    const bool started = start_direct(
        std::move(copy), in_one_row(reinterpret_cast<uint64_t>(view.address), stream.total),
        in_one_row(reinterpret_cast<uint64_t>(stream.source), stream.total), view);
    if (!started) {
        shared.finish(id, false);
    }
    return started;
}

// ---------------------------------------------------------------- end

unsigned Link::finish_direct_copies() {
    std::list<DirectCopy> ended;
    for (auto copy = direct_copies_.begin(); copy != direct_copies_.end();) {
        const auto next = std::next(copy);
        copy->status = port_.engine().poll(&copy->ticket);
        if (copy->status != Status::in_progress) {
            ended.splice(ended.end(), direct_copies_, copy);
        }
        copy = next;
    }
    const auto count = static_cast<unsigned>(ended.size());
    for (DirectCopy &copy : ended) {
        if (copy.purpose == DirectCopy::Purpose::push && source_is_gone(copy.stream)) {
            copy.status = Status::gpu_error;  // as lost_source()
        }
        if (copy.shared != nullptr) {
            copy.shared->finish(copy.shared_id, copy.status == Status::ok);
        }
        copy.write.end();  // before anybody is told of the transfer's
        if (copy.purpose != DirectCopy::Purpose::push) {
            count_part(copy.stream.transfer_id, -1);
        }
    }
    for (DirectCopy &copy : ended) {
        end_direct_copy(copy);
    }
    return count;
}

/** Whatever that calls may start copies, or cancel some: this one's operation, too. */
void Link::end_direct_copy(DirectCopy &copy) {
    if (copy.purpose == DirectCopy::Purpose::push) {
        if (copy.status == Status::ok) {
            send_control(CellKind::transfer_done, TransferDone{copy.stream.transfer_id, 0});
        } else if (!failed_ && !closed_) {
            take_other_way(copy);
        }
        return;
    }
    const auto found = operations_.find(copy.stream.transfer_id);
    if (found == operations_.end()) {
        return;
    }
    const bool is_get = copy.purpose == DirectCopy::Purpose::get;
    if (!is_current(is_get ? found->second.remote : copy.stream.remote)) {
        copy.status = Status::gpu_error;
    }
    if (copy.status != Status::ok) {
        take_other_way(copy);
        return;
    }
    if (copy.filled != nullptr) {
        RowViews::instance().set_filled(copy.filled);
    }
    end_operation(copy.stream.transfer_id, Status::ok);
}

/** Tells the peer of those whose copy is over, as it may wait for that while this process waits for
 * it. What else is to be done is left to finish_direct_copies(). */
void Link::end_own_pushes() {
    for (DirectCopy &copy : direct_copies_) {
        if (copy.shared == nullptr) {
            continue;
        }
        const CopyEngine::Scope scope(port_.engine());
        port_.engine().progress();
        CopyTicket ticket = copy.ticket;  // how it ended is still asked for
        const Status status = port_.engine().poll(&ticket);
        if (status != Status::in_progress) {
            copy.shared->finish(copy.shared_id,
                                status == Status::ok && !source_is_gone(copy.stream));
            copy.shared = nullptr;
        }
    }
}

/** A direct copy failed, or what it has read does not count: the data goes through the ring. */
void Link::take_other_way(DirectCopy &copy) {
    switch (copy.purpose) {
        case DirectCopy::Purpose::get:
            request_data(copy.stream.transfer_id, false);
            break;
        case DirectCopy::Purpose::put:
            add_stream(copy.stream);
            break;
        case DirectCopy::Purpose::push:
            streams_.push_back(copy.stream);
            break;
    }
}

}  // namespace gpushm
