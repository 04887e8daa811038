// SPDX-License-Identifier: BSD-3-Clause
// Transfers of a link: put and get in chunks through the staging ring, pipelined on both sides. On
// each side an ahead pointer runs in front of what the other may see: the sender starts copies into
// spans that are not published yet, the receiver out of spans that are not released yet (Ji et al.,
// "Efficient Intranode Communication in GPU-Accelerated Systems", IPDPSW 2012).
#include "core/transport/link.hpp"

#include "core/base/log.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/registration_table.hpp"
#include "core/transport/port.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {
namespace {

// Chunks started in one call of progress(): few, so that the other direction is served between.
constexpr unsigned kChunksPerProgress = 4;

// To start a copy of a GPU takes 6 to 7 us, of managed memory 2 to 3 us more, on both sides, and
// 512 KiB over PCIe 5 take 10: 2 MiB not mapped take 75 us in four chunks and 91 in eight, 4 MiB of
// managed memory 143 and 180 (two H100). A CPU needs next to no start, but each piece takes a cell.
constexpr size_t kSmallestGpuChunk = 512u << 10;
constexpr unsigned kGpuChunks = 4;
constexpr size_t kSmallestHostChunk = 16u << 10;
constexpr unsigned kHostChunks = 8;
// Long ones that come together are given to the driver together (CopyJob::joint_bytes): 512 KiB to
// or from the host take 12.9 us each one by one, 11.5 by twos (H100). More would fill the ring with
// what waits for both engines.
constexpr size_t kSmallestJointChunk = 256u << 10;
constexpr size_t kJointChunkBytes = 1u << 20;
constexpr size_t kChunkAlignment = 4096;

// Puts of one peer that can be incomplete at once; more means that its words make no sense.
constexpr size_t kMaxIncomingPuts = 1u << 16;

unsigned char *pointer(uint64_t address) {
    return reinterpret_cast<unsigned char *>(address);
}

/** Of a chunk for CopyJob::joint_bytes: none where its transfer has others, which are to be copied
 * in turn by both sides. Shorter ones the engine collects by itself; of managed memory the driver
 * copies one after the other. */
size_t joint_bytes_of(size_t length, uint64_t transfer_bytes, const MemoryInfo &info) {
    const bool joins = length >= kSmallestJointChunk && length == transfer_bytes &&
                       info.kind != MemoryKind::managed;
    return joins ? kJointChunkBytes : 0;
}

}  // namespace

Status Link::put(const void *local, size_t length, const RemoteMemory &remote, const void *owner,
                 const Completion &completion) {
    port_.enter();
    const Status status = check_startable();
    if (status != Status::ok || length == 0) {
        return status;
    }
    // To host memory a CPU copies, in the order of the ring.
    const bool in_order = remote.buffer.is_host_memory();
    if (read_.overlaps(remote.address, length) ||
        (!in_order && written_.overlaps(remote.address, length)) ||
        !writer_.has_room(remote.registration)) {
        return Status::no_resource;
    }
    const uint64_t id = start_operation(owner, completion);
    Start start(*this, id);
    operations_[id].held = written_.hold(remote.address, length);
    const MemoryInfo info = query_memory(local);
    const Stream stream = {id,     false,
                           owner,  static_cast<const unsigned char *>(local),
                           info,   gpu_copies(info, local, length),
                           length, 0,
                           remote};
    asked_for_ = 0;
    if (!start_direct_put(stream) && !hold_put(stream)) {
        add_stream(stream);
    }
    return start.done();
}

Status Link::get(void *local, size_t length, const RemoteMemory &remote, const void *owner,
                 const Completion &completion) {
    port_.enter();
    const Status status = check_startable();
    if (status != Status::ok || length == 0) {
        return status;
    }
    if (written_.overlaps(remote.address, length)) {
        return Status::no_resource;
    }
    const MemoryInfo info = query_memory(local);
    const bool on_gpu = gpu_copies(info, local, length);
    const std::optional<HostTransferWays::Way> host_way =
        choose_host_way(remote, length, info, on_gpu);
    if (host_way == HostTransferWays::Way::kernel && read_at_once(local, length, remote)) {
        return end_get_soon(owner, completion);
    }
    const uint64_t id = start_operation_of_round(owner, completion);
    Start start(*this, id);
    Operation &operation = operations_[id];
    operation.held = read_.hold(remote.address, length);
    operation.local = static_cast<unsigned char *>(local);
    operation.local_info = info;
    operation.local_on_gpu = on_gpu;
    operation.length = length;
    operation.remote = remote;
    asked_for_ = 0;
    if (!(host_way && start_shared_read(id, *host_way)) && !start_direct_get(id) && !hold_get(id)) {
        request_data(id, port_.config().peer_mapping);
    }
    return start.done();
}

/** Has the peer send what a get reads, or write it itself where it can. */
void Link::request_data(uint64_t id, bool may_be_pushed) {
    Operation &operation = operations_[id];
    GetRequest request = {};
    request.transfer_id = id;
    request.address = operation.remote.address;
    request.length = operation.length;
    request.registration = operation.remote.registration;
    request.head_start = operation.remote.head_start;
    request.buffer = make_buffer_key(operation.local_info, operation.local_on_gpu);
    if (may_be_pushed && request.buffer.can_be_mapped()) {
        closed_uses_.reserve(kSharedTransfers);  // close_use() allocates nothing
        operation.shared = port_.take_shared_transfer();
        request.shared = operation.shared;
    }
    if (request.shared.exists()) {
        port_.shared_transfer(request.shared.index).open(request.shared.id, 1);
        request.destination = reinterpret_cast<uint64_t>(operation.local);
    }
    send_control(CellKind::get_request, request);
}

Link::Stream Link::reply_stream(const GetRequest &request) {
    const unsigned char *source = pointer(request.address);
    const MemoryInfo info = query_memory(source);
    return {request.transfer_id,
            true,
            nullptr,
            source,
            info,
            gpu_copies(info, source, request.length),
            request.length,
            0,
            RemoteMemory{0, 0},
            request.registration};
}

void Link::receive_get_request(const GetRequest &request) {
    if (request.length == 0 || !RegistrationTable::instance().covers(
                                   request.registration, request.address, request.length)) {
        // Not our error: after a forced close it is the usual end, and the peer says more if it
        // cares.
        GPUSHM_LOG(debug, "process %d asked for %llu bytes that are not registered for it: refused",
                   peer_.pid, static_cast<unsigned long long>(request.length));
        send_control(CellKind::transfer_done, TransferDone{request.transfer_id, 1});
        return;
    }
    peer_gets_to_gpu_ = !request.buffer.cpu_copies();
    if (claim_head_start(request)) {
        return;
    }
    const Stream stream = reply_stream(request);
    port_.activate(*this);
    if (!start_push(stream, request)) {
        queue_reply(stream);
        issue_chunks();
    }
}

/** A put of ours. */
void Link::add_stream(const Stream &stream) {
    streams_.push_back(stream);
    count_part(stream.transfer_id, 1);
}

bool Link::is_one_chunk(const Stream &stream) const {
    return chunk_bytes(stream, stream.by_gpu) == stream.total - stream.issued;
}

/** One of one chunk passes those that have several to go: its message may be short. */
void Link::queue_reply(const Stream &stream) {
    const bool passes = is_one_chunk(stream);
    const auto place =
        passes ? streams_.begin() + static_cast<ptrdiff_t>(leading_) : streams_.end();
    streams_.insert(place, stream);
    leading_ += passes ? 1 : 0;
}

/** After some were taken out. */
void Link::count_leading() {
    const auto first =
        std::find_if_not(streams_.begin(), streams_.end(),
                         [this](const Stream &stream) { return is_one_chunk(stream); });
    leading_ = static_cast<size_t>(first - streams_.begin());
}

void Link::give_up_broken_transfer() {
    GPUSHM_LOG(error,
               "process %d ended a transfer that is under way: the connection is given up; "
               "look for memory corruption in the job's processes",
               peer_.pid);
    fail();
}

void Link::receive_transfer_done(const TransferDone &done) {
    const auto found = operations_.find(done.transfer_id);
    if (found == operations_.end()) {
        return;  // it was cancelled
    }
    const Operation &operation = found->second;
    const bool is_get = operation.local != nullptr;
    const bool pushed = operation.shared.exists() && operation.arrived == 0;
    if (operation.is_message || operation.parts != 0 || (is_get && done.failed == 0 && !pushed)) {
        give_up_broken_transfer();
        return;
    }
    if (done.failed != 0) {
        GPUSHM_LOG(error,
                   "process %d could not complete a transfer: its log says why, with "
                   "UCX_LOG_LEVEL=debug",
                   peer_.pid);
    }
    end_operation(done.transfer_id, done.failed != 0 ? Status::gpu_error : Status::ok);
}

// ---------------------------------------------------------------- the sending side

unsigned Link::issue_chunks() {
    if (!streams_.empty() && ring_state_ == RingState::none) {
        offer_ring(streams_.front().source_info);
    }
    unsigned count = 0;
    while (!streams_.empty() && ring_state_ != RingState::offered && count < kChunksPerProgress) {
        Stream &stream = streams_.front();
        const bool issued =
            ring_state_ == RingState::ready ? issue_ring_chunk(stream) : issue_slot_chunk(stream);
        if (!issued) {
            break;
        }
        ++count;
        if (stream.issued == stream.total) {
            if (!stream.is_reply) {
                count_part(stream.transfer_id, -1);
            }
            streams_.pop_front();
            leading_ -= leading_ != 0 ? 1 : 0;
        }
        publish_spans();
    }
    return count;
}

bool Link::is_of(const OutgoingSpan &span, const Stream &stream) {
    return span.chunk.transfer_id == stream.transfer_id &&
           (span.chunk.is_reply != 0) == stream.is_reply;
}

size_t Link::chunk_bytes(const Stream &stream, bool from_gpu) const {
    const PortConfig &config = port_.config();
    const size_t largest = from_gpu ? config.gpu_chunk_bytes : config.host_chunk_bytes;
    // So many that both sides work at once, unless each then costs more to start than to copy, or
    // both are at work with other transfers: then large ones cost least.
    const bool others =
        from_gpu && outgoing_spans_.size() >= 2 && !is_of(outgoing_spans_.front(), stream);
    const unsigned chunks = from_gpu ? kGpuChunks : kHostChunks;
    const size_t part = (stream.total / chunks + kChunkAlignment - 1) & ~(kChunkAlignment - 1);
    const size_t smallest = from_gpu ? kSmallestGpuChunk : kSmallestHostChunk;
    const size_t preferred = others ? largest : std::min(largest, std::max(smallest, part));
    const size_t possible =
        ring_state_ == RingState::ready ? tx_ring_->data_bytes() / 4 : size_t{kSlotBytes};
    return std::min<uint64_t>(std::min(preferred, possible), stream.total - stream.issued);
}

TransferChunk Link::describe_chunk(const Stream &stream) const {
    TransferChunk chunk = {};
    chunk.transfer_id = stream.transfer_id;
    chunk.offset = stream.issued;
    chunk.total = stream.total;
    chunk.address = stream.remote.address;
    chunk.registration = stream.remote.registration;
    chunk.is_reply = stream.is_reply ? 1 : 0;
    return chunk;
}

/** Whoever asked for a reply may have given it up, and its memory may be freed by now. */
bool Link::source_is_gone(Stream &stream) const {
    if (stream.is_reply && !stream.source_gone &&
        !RegistrationTable::instance().covers(
            stream.registration, reinterpret_cast<uint64_t>(stream.source), stream.total)) {
        GPUSHM_LOG(debug,
                   "process %d reads %llu bytes that are not registered for it any more: "
                   "refused",
                   peer_.pid, static_cast<unsigned long long>(stream.total));
        stream.source_gone = true;
    }
    return stream.source_gone;
}

/** Managed memory may lie here and there: looked at for each chunk, which costs a system call. That
 * a GPU copies the first one is known; that a CPU may, is seen before it does: the memory may have
 * been freed meanwhile. */
bool Link::gpu_copies_chunk(const Stream &stream) const {
    const uint64_t length =
        std::min<uint64_t>(stream.total - stream.issued, port_.config().host_chunk_bytes);
    return (stream.issued == 0 && stream.by_gpu) ||
           gpu_copies(stream.source_info, stream.source + stream.issued, length);
}

/** The source of a reply, which is registered now. */
void Link::note_source(OutgoingSpan &out, uint64_t registration) {
    out.registration = registration;
    out.removals = RegistrationTable::instance().removals();
}

/** Whether the source of a reply was taken out of the table while it was copied: its message was
 * given up (the endpoint was closed by force), and its owner may have written there since. */
bool Link::lost_source(const OutgoingSpan &out) {
    const RegistrationTable &table = RegistrationTable::instance();
    return out.registration != 0 && out.removals != table.removals() &&
           !table.covers(out.registration, reinterpret_cast<uint64_t>(out.source), out.span.length);
}

bool Link::issue_ring_chunk(Stream &stream) {
    const unsigned char *source = stream.source + stream.issued;
    const bool from_gpu = gpu_copies_chunk(stream);
    const size_t length = chunk_bytes(stream, from_gpu);
    const std::optional<RingSpan> span = tx_ring_->allocate(length);
    if (!span) {
        give_up_head_starts();  // they may be what takes the room
        return false;
    }
    if (stream.is_reply && stream.issued == 0 && (length == stream.total || !from_gpu) &&
        stream.total <= longest_head_start(stream.source_info, from_gpu)) {
        count_staged_get(from_gpu);
    }
    OutgoingSpan &out = add_span(*span, stream.owner, CellKind::chunk_ring, from_gpu ? 1 : 0);
    out.chunk = describe_chunk(stream);
    out.chunk.span = *span;
    unsigned char *destination = tx_ring_->data(*span);
    if (stream.is_reply) {
        out.source = source;
        note_source(out, stream.registration);
    }
    if (source_is_gone(stream)) {
        out.copy_failed = true;
    } else if (from_gpu) {
        out.copy_failed = !fill_by_gpu(out, destination, source, length, stream.source_info);
    } else {
        memcpy(destination, source, length);
    }
    stream.issued += length;
    if (!stream.is_reply) {
        count_part(stream.transfer_id, 1);
    }
    return true;
}

bool Link::issue_slot_chunk(Stream &stream) {
    if (!mailbox_.has_room()) {
        return false;
    }
    unsigned char gathered[kSlotBytes];
    const size_t length = chunk_bytes(stream, false);
    TransferChunk chunk = describe_chunk(stream);
    chunk.failed = source_is_gone(stream) ||
                   copy_any(gathered, stream.source + stream.issued, length) != Status::ok;
    ReservedCell reserved;
    if (!mailbox_.reserve(&reserved)) {
        return false;
    }
    memcpy(mailbox_.slot(reserved), gathered, length);
    memcpy(reserved.cell->payload, &chunk, sizeof(chunk));
    mailbox_.publish(reserved, CellKind::chunk_slot, 0, static_cast<uint32_t>(length));
    stream.issued += length;
    return true;
}

/** Starts a copy into the span; false when the driver refuses. */
bool Link::fill_by_gpu(OutgoingSpan &out, void *destination, const void *source, size_t length,
                       const MemoryInfo &gpu_side) {
    CopyTicket ticket;
    CopyJob job = {destination, source, length, gpu_side, CopyDirection::from_gpu};
    job.source_may_go = out.head_start != 0;
    job.transfer_bytes = out.chunk.total;
    job.joint_bytes = joint_bytes_of(length, out.chunk.total, gpu_side);
    const Status status = port_.engine().start(job, &ticket);
    if (status == Status::in_progress) {
        out.tickets.push_back(ticket);
    }
    return status != Status::gpu_error;
}

/** Whether no copy into the span runs any more. */
bool Link::is_filled(OutgoingSpan &out) {
    while (!out.tickets.empty()) {
        const Status status = port_.engine().poll(&out.tickets.back());
        if (status == Status::in_progress) {
            return false;
        }
        out.copy_failed |= status != Status::ok;
        out.tickets.pop_back();
    }
    return true;
}

unsigned Link::publish_spans() {
    unsigned count = 0;
    while (!outgoing_spans_.empty()) {
        OutgoingSpan &front = outgoing_spans_.front();
        if (!is_filled(front) || hold_head_start(front)) {
            break;
        }
        front.copy_failed |= lost_source(front);
        if (!publish_span(front)) {
            break;
        }
        const bool is_message = front.kind == CellKind::am_ring;
        const uint64_t operation = front.operation;
        const Status status = front.copy_failed ? Status::gpu_error : Status::ok;
        if (!is_message && front.chunk.is_reply == 0) {
            count_part(front.chunk.transfer_id, -1);
        }
        outgoing_spans_.pop_front();
        ++count;
        if (is_message) {
            --messages_in_flight_;
            end_operation(operation, status);
        }
    }
    return count;
}

/** A small message, which the receiver then finds with one look: he need not fetch it from the
 * ring. Of a ring without an end only the newest span can be left out. */
bool Link::goes_in_cell(const OutgoingSpan &out) const {
    return out.kind == CellKind::am_ring && !out.copy_failed &&
           out.span.length <= Cell::kInlineBytes && tx_ring_->is_newest(out.span);
}

/** False when the mailbox is full. */
bool Link::publish_span(OutgoingSpan &out) {
    ReservedCell reserved;
    if (!mailbox_.reserve(&reserved)) {
        return false;
    }
    if (goes_in_cell(out)) {
        memcpy(reserved.cell->payload, tx_ring_->data(out.span), out.span.length);
        mailbox_.publish(reserved, CellKind::am_inline, out.am_id,
                         static_cast<uint32_t>(out.span.length));
        tx_ring_->give_back(out.span);
        return true;
    }
    if (out.kind == CellKind::am_ring && !out.copy_failed) {
        memcpy(reserved.cell->payload, &out.span, sizeof(out.span));
        mailbox_.publish(reserved, CellKind::am_ring, out.am_id, sizeof(out.span));
        return true;
    }
    // A message that could not be read goes out as a chunk of no transfer (id 0): the receiver only
    // releases its span.
    out.chunk.span = out.span;
    out.chunk.failed = out.copy_failed ? 1 : 0;
    memcpy(reserved.cell->payload, &out.chunk, sizeof(out.chunk));
    mailbox_.publish(reserved, CellKind::chunk_ring, 0, sizeof(out.chunk));
    return true;
}

// ---------------------------------------------------------------- the receiving side

void Link::receive_chunk(const TransferChunk &chunk, const unsigned char *slot,
                         size_t slot_length) {
    if (slot != nullptr) {
        store_chunk(chunk, slot, slot_length, false);
    } else if (const unsigned char *data = open_span(chunk.span)) {
        store_chunk(chunk, data, chunk.span.length, true);
    }
}

/** Where a chunk belongs in this process, and whether a GPU copies to there; null when nobody
 * waits for it or it names memory that it may not write. A put writes while `*use` lives. */
unsigned char *Link::chunk_destination(const TransferChunk &chunk, uint64_t length,
                                       MemoryInfo *info, bool *on_gpu,
                                       RegistrationTable::Use *use) {
    if (length > chunk.total || chunk.offset > chunk.total - length || chunk.failed != 0) {
        return nullptr;
    }
    if (chunk.is_reply != 0) {
        const auto found = operations_.find(chunk.transfer_id);
        if (found == operations_.end() || found->second.local == nullptr ||
            found->second.length != chunk.total) {
            return nullptr;
        }
        *info = found->second.local_info;
        unsigned char *destination = found->second.local + chunk.offset;
        // Of managed memory, which costs a system call, it is known still what get() found.
        *on_gpu = length == chunk.total ? found->second.local_on_gpu
                                        : gpu_copies(*info, destination, length);
        return destination;
    }
    *use = RegistrationTable::instance().use(chunk.registration, chunk.address, chunk.total);
    if (!*use) {
        const auto known = incoming_puts_.find(chunk.transfer_id);
        if (known == incoming_puts_.end() || !known->second.failed) {
            GPUSHM_LOG(debug,
                       "process %d wants to write %llu bytes that are not registered for it: "
                       "refused",
                       peer_.pid, static_cast<unsigned long long>(chunk.total));
        }
        return nullptr;
    }
    unsigned char *destination = pointer(chunk.address + chunk.offset);
    *info = query_memory(destination);
    *on_gpu = gpu_copies(*info, destination, length);
    return destination;
}

void Link::store_chunk(const TransferChunk &chunk, const unsigned char *data, uint64_t length,
                       bool from_ring) {
    MemoryInfo info;
    bool on_gpu = false;
    RegistrationTable::Use use;
    unsigned char *destination = chunk_destination(chunk, length, &info, &on_gpu, &use);
    bool stored = destination != nullptr;
    if (stored && on_gpu) {
        CopyTicket ticket;
        CopyJob job = {destination, data, length, info, CopyDirection::to_gpu};
        job.urgent = chunk.is_reply != 0 && operations_.size() == 1;
        job.transfer_bytes = chunk.total;
        job.joint_bytes = joint_bytes_of(length, chunk.total, info);
        if (from_ring) {
            incoming_copies_.push_back({ticket, chunk, std::move(use)});  // before a copy has begun
        }
        Status status = port_.engine().start(job, &ticket);
        if (status == Status::in_progress && from_ring) {
            incoming_copies_.back().ticket = ticket;
            if (chunk.is_reply != 0) {
                count_part(chunk.transfer_id, 1);
            }
            port_.activate(*this);
            return;
        }
        if (from_ring) {
            incoming_copies_.pop_back();
        }
        if (status == Status::in_progress) {
            status = port_.engine().wait(&ticket);
        }
        stored = status == Status::ok;
    } else if (stored) {
        memcpy(destination, data, length);
    }
    if (from_ring) {
        rx_ring_->close(chunk.span);
    }
    chunk_arrived(chunk, length, stored);
}

unsigned Link::finish_incoming_copies() {
    unsigned count = 0;
    while (!incoming_copies_.empty()) {
        IncomingCopy &front = incoming_copies_.front();
        const Status status = port_.engine().poll(&front.ticket);
        if (status == Status::in_progress) {
            break;
        }
        const TransferChunk chunk = front.chunk;
        incoming_copies_.pop_front();
        if (chunk.is_reply != 0) {
            count_part(chunk.transfer_id, -1);
        }
        rx_ring_->close(chunk.span);
        chunk_arrived(chunk, chunk.span.length, status == Status::ok && chunk.failed == 0);
        ++count;
    }
    return count;
}

void Link::chunk_arrived(const TransferChunk &chunk, uint64_t length, bool stored) {
    if (chunk.is_reply != 0) {
        const auto found = operations_.find(chunk.transfer_id);
        if (found == operations_.end() || found->second.local == nullptr) {
            return;
        }
        found->second.failed |= !stored;
        found->second.arrived += length;
        if (found->second.arrived >= found->second.length) {
            if (found->second.parts != 0) {
                give_up_broken_transfer();
                return;
            }
            end_operation(chunk.transfer_id, found->second.failed ? Status::gpu_error : Status::ok);
        }
        return;
    }
    // The puts of a peer come one after the other: of an older one that is not complete by now the
    // rest was cancelled.
    if (incoming_copies_.empty()) {
        incoming_puts_.erase(incoming_puts_.begin(), incoming_puts_.lower_bound(chunk.transfer_id));
    }
    if (chunk.transfer_id == 0 || incoming_puts_.size() >= kMaxIncomingPuts) {
        return;
    }
    IncomingPut &incoming = incoming_puts_[chunk.transfer_id];
    incoming.failed |= !stored;
    incoming.arrived += length;
    if (incoming.arrived >= chunk.total) {
        send_control(CellKind::transfer_done,
                     TransferDone{chunk.transfer_id, incoming.failed ? 1u : 0u});
        incoming_puts_.erase(chunk.transfer_id);
    }
}

}  // namespace gpushm
