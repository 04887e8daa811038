// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/ring_sender.hpp"

#include "core/base/addresses.hpp"
#include "core/base/drop_if.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/registration_table.hpp"
#include "core/transport/joint_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {
namespace {

// Chunks started in one call of progress(): few, so that the other direction is served between.
constexpr unsigned kChunksPerProgress = 4;

// Few chunks of a GPU, because to start a copy costs as much as to copy 300 KB, on both sides
// (doc/decisions/ring-chunks.md). A CPU needs next to no start, but each chunk takes a cell.
constexpr size_t kSmallestGpuChunk = 512u << 10;
constexpr unsigned kGpuChunks = 4;
constexpr size_t kSmallestHostChunk = 16u << 10;
constexpr unsigned kHostChunks = 8;
constexpr size_t kChunkAlignment = 4096;

bool is_of(const OutgoingSpan &span, const ChunkedTransfer &transfer) {
    return span.chunk.transfer_id == transfer.id && (span.chunk.is_reply != 0) == transfer.is_reply;
}

TransferChunk describe_chunk(const ChunkedTransfer &transfer) {
    TransferChunk chunk = {};
    chunk.transfer_id = transfer.id;
    chunk.offset = transfer.issued;
    chunk.total = transfer.total;
    chunk.address = transfer.remote.address;
    chunk.registration = transfer.remote.registration;
    chunk.is_reply = transfer.is_reply ? 1 : 0;
    return chunk;
}

/** The source of a reply, which is registered now. */
void note_source(OutgoingSpan &out, uint64_t registration) {
    out.registration = registration;
    out.removals = RegistrationTable::instance().removals();
}

/** Whether the source of a reply was taken out of the table while it was copied: its message was
 * given up (the endpoint was closed by force), and its owner may have written there since. */
bool lost_source(const OutgoingSpan &out) {
    const RegistrationTable &table = RegistrationTable::instance();
    return out.registration != 0 && out.removals != table.removals() &&
           !table.covers(out.registration, to_number(out.source), out.chunk.length);
}

}  // namespace

// ---------------------------------------------------------------- the ring

void RingSender::offer(const MemoryInfo &source) {
    const size_t bytes = channel_.port.next_ring_bytes();
    const int node = source.needs_gpu() ? numa_node_of(source) : kAnyNumaNode;
    std::optional<StagingRingSender> made =
        bytes == 0 ? std::nullopt : StagingRingSender::create(bytes, node);
    if (!made) {
        drop();
        return;
    }
    channel_.send(CellKind::ring_offer, RingOffer{made->cookie(), made->segment_fd()});
    channel_.port.count_ring(static_cast<ptrdiff_t>(made->data_bytes()));
    ring_ = std::move(made);
    state_ = State::offered;
}

void RingSender::receive_answer(const RingAnswer &answer) {
    if (state_ != State::offered) {
        return;
    }
    if (answer.accepted != 0) {
        state_ = State::ready;
        ring_->close_segment_fd();
    } else {
        drop();
    }
}

void RingSender::drop() {
    if (ring_) {
        channel_.port.count_ring(-static_cast<ptrdiff_t>(ring_->data_bytes()));
        ring_.reset();
    }
    gpu_ring_.drop();
    state_ = State::refused;
}

void RingSender::receive_gpu_ring_answer(const GpuRingAnswer &answer) {
    gpu_ring_.receive_answer(answer);
    drop_gpu_ring_if_unused();
}

/** Frees what the peer has refused when nothing is copied into it any more. */
void RingSender::drop_gpu_ring_if_unused() {
    const auto is_there = [](const OutgoingSpan &out) { return out.chunk.in_gpu_ring != 0; };
    if (gpu_ring_.is_given_up() && std::none_of(spans_.begin(), spans_.end(), is_there)) {
        gpu_ring_.drop();
    }
}

// ---------------------------------------------------------------- spans

OutgoingSpan &RingSender::add_span(const RingSpan &span, const void *owner, CellKind kind,
                                   size_t copies) {
    OutgoingSpan out;
    out.tickets.reserve(copies);  // so that each copy that has begun is known
    out.span = span;
    out.chunk.length = span.length;
    out.owner = owner;
    out.kind = kind;
    spans_.push_back(std::move(out));
    return spans_.back();
}

/** Waits for copies to it. */
void RingSender::drop_last_span() {
    OutgoingSpan &out = spans_.back();
    for (CopyTicket &ticket : out.tickets) {
        channel_.port.engine().wait(&ticket);
    }
    ring_->give_back(out.span);
    spans_.pop_back();
}

bool RingSender::fill_by_gpu(OutgoingSpan &out, void *destination, const void *source,
                             size_t length, const MemoryInfo &gpu_side) {
    CopyTicket ticket;
    CopyJob job = {destination, source, length, gpu_side, CopyDirection::from_gpu};
    job.source_may_go = out.speculative_copy != 0;
    job.transfer_bytes = out.chunk.total;
    if (out.chunk.in_gpu_ring != 0) {
        job.direction = CopyDirection::to_gpu;
        job.in_reach = true;
        job.other_side = OtherSide::same_gpu;
        job.source_may_be_unmapped = !gpu_side.is_of_mem_alloc();
    } else {
        job.joint_bytes = joint_bytes_of_chunk(length, out.chunk.total, gpu_side);
    }
    const Status status = channel_.port.engine().start(job, &ticket);
    if (status == Status::in_progress) {
        out.tickets.push_back(ticket);
    }
    return status != Status::gpu_error;
}

/** Whether no copy into the span runs any more. */
bool RingSender::is_filled(OutgoingSpan &out) {
    while (!out.tickets.empty()) {
        const Status status = channel_.port.engine().poll(&out.tickets.back());
        if (status == Status::in_progress) {
            return false;
        }
        out.copy_failed |= status != Status::ok;
        out.tickets.pop_back();
    }
    return true;
}

unsigned RingSender::publish() {
    unsigned count = 0;
    while (!spans_.empty()) {
        OutgoingSpan &front = spans_.front();
        if (!is_filled(front) || holds_front()) {
            break;
        }
        front.copy_failed |= lost_source(front);
        if (!publish(front)) {
            break;
        }
        const bool is_message = front.kind == CellKind::am_ring;
        const uint64_t operation = front.operation;
        const Status status = front.copy_failed ? Status::gpu_error : Status::ok;
        if (!is_message && front.chunk.is_reply == 0) {
            operations_.count_part(front.chunk.transfer_id, -1);
        }
        spans_.pop_front();
        ++count;
        if (is_message) {
            --messages_;
            operations_.end(operation, status);
        }
    }
    drop_gpu_ring_if_unused();
    return count;
}

/** A small message: the receiver finds it with one look and need not fetch it from the ring. Of a
 * ring without an end only the newest span can be left out. */
bool RingSender::goes_in_cell(const OutgoingSpan &out) const {
    return out.kind == CellKind::am_ring && !out.copy_failed &&
           out.span.length <= Cell::kInlineBytes && ring_->is_newest(out.span);
}

/** False when the mailbox is full. */
bool RingSender::publish(OutgoingSpan &out) {
    MailboxSender &mailbox = channel_.mailbox;
    ReservedCell reserved;
    if (!mailbox.reserve(&reserved, Room::cell)) {
        return false;
    }
    if (goes_in_cell(out)) {
        memcpy(reserved.cell->payload, ring_->data(out.span), out.span.length);
        mailbox.publish(reserved, CellKind::am_inline, out.am_id,
                        static_cast<uint32_t>(out.span.length));
        ring_->give_back(out.span);
        return true;
    }
    if (out.kind == CellKind::am_ring && !out.copy_failed) {
        memcpy(reserved.cell->payload, &out.span, sizeof(out.span));
        mailbox.publish(reserved, CellKind::am_ring, out.am_id, sizeof(out.span));
        return true;
    }
    // A message that could not be read goes out as a chunk of no transfer (id 0): the receiver only
    // releases its span.
    out.chunk.span = out.span;
    out.chunk.failed = out.copy_failed ? 1 : 0;
    memcpy(reserved.cell->payload, &out.chunk, sizeof(out.chunk));
    mailbox.publish(reserved, CellKind::chunk_ring, 0, sizeof(out.chunk));
    return true;
}

// ---------------------------------------------------------------- speculative copies

SpeculativeCopies::Ring RingSender::describe_ring() const {
    return {ring_->data_bytes(), spans_.empty(), !transfers_.empty(),
            channel_.port.config().gpu_chunk_bytes, gpu_ring_.shortest()};
}

uint64_t RingSender::plan_copy(const SpeculativeCopies::Plan &wanted) {
    const SpeculativeCopies::Ring ring = describe_ring();
    if (!speculation_.suits(wanted, ring)) {
        return 0;
    }
    const uint64_t number = speculation_.plan(wanted, ring);
    if (number == 0 && speculation_.is_ignored()) {
        give_up_copies();
    }
    return number;
}

/** Without a copy the request is answered as any other, so nothing that fails here matters. */
void RingSender::begin_planned_copy() {
    const std::optional<SpeculativeCopies::Plan> plan = speculation_.take_plan();
    const std::optional<RingSpan> span = plan ? ring_->allocate(plan->length) : std::nullopt;
    if (!span) {
        return;
    }
    const auto fill = [&](OutgoingSpan &out) {
        out.speculative_copy = plan->number;
        out.source = plan->source;
        out.by_gpu = plan->by_gpu;
        out.chunk.is_reply = 1;
        if (plan->by_gpu) {
            return fill_by_gpu(out, ring_->data(*span), plan->source, plan->length, plan->info);
        }
        memcpy(ring_->data(*span), plan->source, plan->length);
        return true;
    };
    if (fill_span(*span, nullptr, CellKind::chunk_ring, 1, fill) == Status::ok) {
        speculation_.add_waiting(plan->length);
        channel_.activate();
    }
}

OutgoingSpan *RingSender::find_copy(const GetRequest &request) {
    if (request.speculative_copy == 0) {
        return nullptr;
    }
    const auto out = std::find_if(spans_.begin(), spans_.end(), [&](const OutgoingSpan &candidate) {
        return candidate.speculative_copy == request.speculative_copy;
    });
    const bool has_it = out != spans_.end() && !out->copy_failed &&
                        out->span.length == request.length &&
                        to_number(out->source) == request.address;
    return has_it ? &*out : nullptr;
}

void RingSender::answer_by_copy(OutgoingSpan &out, const GetRequest &request) {
    speculation_.stop_waiting(out);
    note_source(out, request.registration);
    out.chunk.transfer_id = request.transfer_id;
    out.chunk.total = request.length;
    if (request.length <= speculation_.usual_bytes(out.by_gpu)) {
        speculation_.count_staged_get(out.by_gpu);
    }
    channel_.activate();
    publish();
}

void RingSender::give_up_copy(OutgoingSpan &out) {
    speculation_.give_up(out);
    channel_.activate();
    publish();
}

/** Nobody can tell when they are asked for, and others wait for their room. */
void RingSender::give_up_copies() {
    if (speculation_.give_up_all(spans_)) {
        channel_.activate();
    }
}

/** Whether the span at the front of the ring waits for its request. */
bool RingSender::holds_front() {
    if (!speculation_.hold(spans_)) {
        return false;
    }
    bool all_filled = true;
    for (OutgoingSpan &out : spans_) {
        all_filled &= is_filled(out);
    }
    speculation_.note_filled(all_filled);
    return true;
}

// ---------------------------------------------------------------- transfers

void RingSender::add_put(const ChunkedTransfer &transfer) {
    transfers_.push_back(transfer);
    operations_.count_part(transfer.id, 1);
}

void RingSender::add_reply(const ChunkedTransfer &transfer) {
    const bool passes = is_one_chunk(transfer);
    const auto place =
        passes ? transfers_.begin() + static_cast<ptrdiff_t>(leading_) : transfers_.end();
    transfers_.insert(place, transfer);
    leading_ += passes ? 1 : 0;
}

bool RingSender::is_one_chunk(const ChunkedTransfer &transfer) const {
    return chunk_bytes(transfer, transfer.by_gpu) == transfer.total - transfer.issued;
}

/** After some were taken out. */
void RingSender::count_leading() {
    const auto first = std::find_if_not(
        transfers_.begin(), transfers_.end(),
        [this](const ChunkedTransfer &transfer) { return is_one_chunk(transfer); });
    leading_ = static_cast<size_t>(first - transfers_.begin());
}

unsigned RingSender::issue_chunks() {
    if (!transfers_.empty() && is_unknown()) {
        offer(transfers_.front().source_info);
    }
    if (!transfers_.empty() && is_ready()) {
        gpu_ring_.make_if_due(transfers_.front(), ring_->data_bytes());
    }
    unsigned count = 0;
    while (!transfers_.empty() && state_ != State::offered && count < kChunksPerProgress) {
        ChunkedTransfer &transfer = transfers_.front();
        const bool issued = is_ready() ? issue_ring_chunk(transfer) : issue_slot_chunk(transfer);
        if (!issued) {
            break;
        }
        ++count;
        if (transfer.issued == transfer.total) {
            if (!transfer.is_reply) {
                operations_.count_part(transfer.id, -1);
            }
            transfers_.pop_front();
            leading_ -= leading_ != 0 ? 1 : 0;
        }
        publish();
    }
    return count;
}

/** So many chunks that both sides work at once, unless each then costs more to start than to copy,
 * or both sides are at work with other transfers: then large ones cost least. */
size_t RingSender::chunk_bytes(const ChunkedTransfer &transfer, bool from_gpu) const {
    const PortConfig &config = channel_.port.config();
    const size_t largest = from_gpu ? config.gpu_chunk_bytes : config.host_chunk_bytes;
    const bool others = from_gpu && spans_.size() >= 2 && !is_of(spans_.front(), transfer);
    const unsigned chunks = from_gpu ? kGpuChunks : kHostChunks;
    const size_t part = (transfer.total / chunks + kChunkAlignment - 1) & ~(kChunkAlignment - 1);
    const size_t smallest = from_gpu ? kSmallestGpuChunk : kSmallestHostChunk;
    const size_t preferred = others ? largest : std::min(largest, std::max(smallest, part));
    const size_t possible = is_ready() ? ring_->data_bytes() / 4 : size_t{kSlotBytes};
    return std::min<uint64_t>(std::min(preferred, possible), transfer.total - transfer.issued);
}

/** Long ones: to start a copy costs as much as to copy 4 MB from GPU to GPU
 * (doc/decisions/gpu-ring.md). */
size_t RingSender::gpu_ring_chunk_bytes(const ChunkedTransfer &transfer) const {
    return std::min<uint64_t>(kGpuRingScale * ring_->data_bytes() / 4,
                              transfer.total - transfer.issued);
}

/** Managed memory may lie here and there: it is looked at for each chunk, which costs a system
 * call. That a GPU copies the first chunk is known. That a CPU may is seen before it does, because
 * the memory may have been freed meanwhile. */
bool RingSender::gpu_copies_chunk(const ChunkedTransfer &transfer) const {
    const uint64_t length = std::min<uint64_t>(transfer.total - transfer.issued,
                                               channel_.port.config().host_chunk_bytes);
    return (transfer.issued == 0 && transfer.by_gpu) ||
           gpu_copies(transfer.source_info, transfer.source + transfer.issued, length);
}

/** Empty when the ring has no room, which is asked often, and before the driver is. */
std::optional<RingSender::NextChunk> RingSender::allocate_chunk(const ChunkedTransfer &transfer,
                                                                const unsigned char *source,
                                                                bool from_gpu) {
    if (from_gpu && gpu_ring_.is_for(transfer)) {
        const size_t length = gpu_ring_chunk_bytes(transfer);
        const std::optional<RingSpan> span = ring_->allocate(GpuRing::span_bytes(length));
        if (!span) {
            return std::nullopt;
        }
        if (gpu_ring_.takes(transfer, source, length)) {
            return NextChunk{*span, length, true};
        }
        ring_->give_back(*span);
    }
    const size_t length = chunk_bytes(transfer, from_gpu);
    const std::optional<RingSpan> span = ring_->allocate(length);
    return span ? std::optional<NextChunk>({*span, length, false}) : std::nullopt;
}

/** False when the ring has no room. */
bool RingSender::issue_ring_chunk(ChunkedTransfer &transfer) {
    const unsigned char *source = transfer.source + transfer.issued;
    const bool from_gpu = gpu_copies_chunk(transfer);
    const std::optional<NextChunk> next = allocate_chunk(transfer, source, from_gpu);
    if (!next) {
        give_up_copies();  // they may be what takes the room
        return false;
    }
    const auto [span, length, in_gpu_ring] = *next;
    if (transfer.is_reply && transfer.issued == 0 && (length == transfer.total || !from_gpu) &&
        transfer.total <=
            speculation_.longest_bytes(transfer.source_info, from_gpu, describe_ring())) {
        speculation_.count_staged_get(from_gpu);
    }
    OutgoingSpan &out = add_span(span, transfer.owner, CellKind::chunk_ring, from_gpu ? 1 : 0);
    out.chunk = describe_chunk(transfer);
    out.chunk.span = span;
    out.chunk.length = length;
    out.chunk.in_gpu_ring = in_gpu_ring ? 1 : 0;
    unsigned char *destination =
        in_gpu_ring ? gpu_ring_.at(ring_->offset(span)) : ring_->data(span);
    if (from_gpu && !in_gpu_ring) {
        gpu_ring_.count(transfer, length);
    }
    if (transfer.is_reply) {
        out.source = source;
        note_source(out, transfer.registration);
    }
    if (source_is_gone(transfer, channel_)) {
        out.copy_failed = true;
    } else if (from_gpu) {
        out.copy_failed = !fill_by_gpu(out, destination, source, length, transfer.source_info);
    } else {
        memcpy(destination, source, length);
    }
    transfer.issued += length;
    if (!transfer.is_reply) {
        operations_.count_part(transfer.id, 1);
    }
    return true;
}

/** Where the peer has no ring. False when the mailbox has no room. */
bool RingSender::issue_slot_chunk(ChunkedTransfer &transfer) {
    MailboxSender &mailbox = channel_.mailbox;
    if (!mailbox.has_room()) {
        return false;
    }
    unsigned char gathered[kSlotBytes];
    const size_t length = chunk_bytes(transfer, false);
    TransferChunk chunk = describe_chunk(transfer);
    chunk.failed = source_is_gone(transfer, channel_) ||
                   copy_any(gathered, transfer.source + transfer.issued, length) != Status::ok;
    ReservedCell reserved;
    if (!mailbox.reserve(&reserved)) {
        return false;
    }
    memcpy(mailbox.slot(reserved), gathered, length);
    memcpy(reserved.cell->payload, &chunk, sizeof(chunk));
    mailbox.publish(reserved, CellKind::chunk_slot, 0, static_cast<uint32_t>(length));
    transfer.issued += length;
    return true;
}

// ---------------------------------------------------------------- the end

void RingSender::wait_for_copies(const void *owner) {
    for (OutgoingSpan &out : spans_) {
        if (owner == nullptr || out.owner == owner || out.speculative_copy != 0) {
            for (CopyTicket &ticket : out.tickets) {
                out.copy_failed |= channel_.port.engine().wait(&ticket) != Status::ok;
            }
            out.tickets.clear();
        }
    }
}

void RingSender::cancel(Operations::Cancellation &cancellation) {
    const auto is_owned = [&](const ChunkedTransfer &transfer) {
        return transfer.owner == cancellation.owner() && !transfer.is_reply;
    };
    for (const ChunkedTransfer &transfer : transfers_) {
        if (is_owned(transfer)) {
            cancellation.erase(transfer.id);
        }
    }
    drop_if(transfers_, is_owned);
    count_leading();
}

void RingSender::drop_replies() {
    drop_if(transfers_, [](const ChunkedTransfer &transfer) { return transfer.is_reply; });
    count_leading();
    speculation_.forget();
    drop_if(spans_, [](const OutgoingSpan &out) { return out.chunk.is_reply != 0; });
}

void RingSender::forget_spans() {
    spans_.clear();
    messages_ = 0;
    speculation_.forget();
}

void RingSender::clear() {
    forget_spans();
    transfers_.clear();
    count_leading();
}

}  // namespace gpushm
