// SPDX-License-Identifier: BSD-3-Clause
// Active messages and control messages of a link.
#include "core/transport/link.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/transport/port.hpp"

#include <cstring>

namespace gpushm {
namespace {

/** Copies; returns the end of what it wrote. memcpy must not be given the null that stands for
 * nothing. */
unsigned char *append(unsigned char *destination, const void *source, size_t length) {
    if (length != 0) {
        memcpy(destination, source, length);
    }
    return destination + length;
}

void append(unsigned char *destination, const Piece *pieces, size_t piece_count) {
    for (size_t i = 0; i < piece_count; ++i) {
        destination = append(destination, pieces[i].address, pieces[i].length);
    }
}

}  // namespace

Status Link::am_short_pieces(uint8_t am_id, const Piece *pieces, size_t piece_count) {
    const Status status = check_sendable();
    if (status != Status::ok) {
        return status;
    }
    size_t length = 0;
    for (size_t i = 0; i < piece_count; ++i) {
        length += pieces[i].length;
    }
    if (length > Cell::kInlineBytes) {
        return Status::invalid;
    }
    ReservedCell reserved;
    if (!mailbox_.reserve(&reserved)) {
        return Status::no_resource;
    }
    append(reserved.cell->payload, pieces, piece_count);
    mailbox_.publish(reserved, CellKind::am_inline, am_id, static_cast<uint32_t>(length));
    return Status::ok;
}

Status Link::am_pack(uint8_t am_id, Pack pack, void *argument, size_t *packed_length) {
    port_.enter();
    const Status status = check_sendable();
    if (status != Status::ok) {
        return status;
    }
    ReservedCell reserved;
    if (!mailbox_.reserve(&reserved)) {
        return Status::no_resource;
    }
    *packed_length = head_start_is_likely()
                         ? pack_with_plan(pack, mailbox_.slot(reserved), argument)
                         : pack(mailbox_.slot(reserved), argument);
    mailbox_.publish(reserved, CellKind::am_slot, am_id, static_cast<uint32_t>(*packed_length));
    if (planned_) {
        begin_head_start();
    }
    return Status::ok;
}

Status Link::am_pieces(uint8_t am_id, const void *header, size_t header_length, const Piece *pieces,
                       size_t piece_count, const void *owner, const Completion &completion) {
    port_.enter();
    if (failed_) {
        return Status::peer_failed;
    }
    if (piece_count > kMaxPieces) {
        return Status::invalid;
    }
    Message message = {am_id, header, header_length, pieces, piece_count, header_length, {}};
    const MemoryInfo *on_gpu = nullptr;  // one of the pieces that a GPU copies
    for (size_t i = 0; i < piece_count; ++i) {
        message.length += pieces[i].length;
        if (pieces[i].length != 0) {
            const MemoryInfo info = query_memory(pieces[i].address);
            if (gpu_copies(info, pieces[i].address, pieces[i].length)) {
                on_gpu = &message.gpu_sides[i].emplace(info);
            }
        }
    }
    if (message.length > kSlotBytes) {
        return Status::invalid;
    }
    if (on_gpu != nullptr && ring_state_ == RingState::none) {
        offer_ring(*on_gpu);
    }
    if (on_gpu != nullptr && ring_state_ == RingState::ready && !fence_pending() &&
        message.length <= tx_ring_->data_bytes() / 2) {
        return send_pieces_by_ring(message, owner, completion);
    }
    return on_gpu != nullptr ? send_gpu_pieces_by_slot(message) : send_host_pieces(message);
}

Status Link::send_pieces_by_ring(const Message &message, const void *owner,
                                 const Completion &completion) {
    const std::optional<RingSpan> span = tx_ring_->allocate(message.length);
    if (!span) {
        give_up_head_starts();
        return Status::no_resource;
    }
    bool filled = false;
    bool has_span = false;
    const bool tried = as_possible([&] {
        OutgoingSpan &out = add_span(*span, owner, CellKind::am_ring, message.piece_count);
        has_span = true;
        out.am_id = message.am_id;
        filled = fill_span(out, message);
        out.operation = filled ? start_operation(owner, completion) : 0;
    });
    if (tried && filled) {
        operations_[outgoing_spans_.back().operation].is_message = true;
        ++messages_in_flight_;
        return Status::in_progress;
    }
    if (has_span) {
        drop_last_span();
    } else {
        tx_ring_->give_back(*span);
    }
    return tried ? Status::gpu_error : Status::out_of_memory;
}

/** One that is to be filled, by so many copies of a GPU at most. */
Link::OutgoingSpan &Link::add_span(const RingSpan &span, const void *owner, CellKind kind,
                                   size_t copies) {
    OutgoingSpan out;
    out.tickets.reserve(copies);  // so that each that has begun is known
    out.span = span;
    out.owner = owner;
    out.kind = kind;
    outgoing_spans_.push_back(std::move(out));
    return outgoing_spans_.back();
}

/** Waits for copies to it. */
void Link::drop_last_span() {
    OutgoingSpan &out = outgoing_spans_.back();
    for (CopyTicket &ticket : out.tickets) {
        port_.engine().wait(&ticket);
    }
    tx_ring_->give_back(out.span);
    outgoing_spans_.pop_back();
}

/** Copies host parts, starts the copies of GPU parts; false when one could not be started. */
bool Link::fill_span(OutgoingSpan &out, const Message &message) {
    unsigned char *destination = tx_ring_->data(out.span);
    destination = append(destination, message.header, message.header_length);
    bool started = true;
    for (size_t i = 0; i < message.piece_count && started; ++i) {
        const Piece &piece = message.pieces[i];
        const std::optional<MemoryInfo> &gpu_side = message.gpu_sides[i];
        if (gpu_side) {
            started = fill_by_gpu(out, destination, piece.address, piece.length, *gpu_side);
        } else if (piece.length != 0) {
            memcpy(destination, piece.address, piece.length);
        }
        destination += piece.length;
    }
    return started;
}

Status Link::send_host_pieces(const Message &message) {
    const Status sendable = check_sendable();
    ReservedCell reserved;
    if (sendable != Status::ok || !mailbox_.reserve(&reserved)) {
        return sendable != Status::ok ? sendable : Status::no_resource;
    }
    const bool fits_cell = message.length <= Cell::kInlineBytes;
    unsigned char *destination = fits_cell ? reserved.cell->payload : mailbox_.slot(reserved);
    destination = append(destination, message.header, message.header_length);
    append(destination, message.pieces, message.piece_count);
    mailbox_.publish(reserved, fits_cell ? CellKind::am_inline : CellKind::am_slot, message.am_id,
                     static_cast<uint32_t>(message.length));
    return Status::ok;
}

/** Gathers the message first, so that no GPU copy runs while a cell is reserved. */
Status Link::send_gpu_pieces_by_slot(const Message &message) {
    const Status sendable = check_sendable();
    if (sendable != Status::ok || !mailbox_.has_room()) {
        return sendable != Status::ok ? sendable : Status::no_resource;
    }
    unsigned char gathered[kSlotBytes];
    size_t offset = 0;
    for (size_t i = 0; i < message.piece_count; ++i) {
        const Piece &piece = message.pieces[i];
        if (copy_any(gathered + offset, piece.address, piece.length) != Status::ok) {
            return Status::gpu_error;
        }
        offset += piece.length;
    }
    const Piece piece = {gathered, offset};
    Message host_message = message;
    host_message.pieces = &piece;
    host_message.piece_count = 1;
    return send_host_pieces(host_message);
}

// ---------------------------------------------------------------- control

unsigned Link::flush_control() {
    unsigned count = 0;
    ReservedCell reserved;
    while (!control_.empty() && mailbox_.reserve(&reserved)) {
        const ControlMessage &message = control_.front();
        memcpy(reserved.cell->payload, message.payload, message.length);
        mailbox_.publish(reserved, message.kind, 0, message.length);
        control_.pop_front();
        ++count;
    }
    return count;
}

void Link::queue_control(CellKind kind, const void *payload, size_t length) {
    if (failed_) {
        return;
    }
    ControlMessage message;
    message.kind = kind;
    message.length = static_cast<uint32_t>(length);
    memcpy(message.payload, payload, length);
    control_.push_back(message);  // nothing that follows can fail
    flush_control();
    if (!control_.empty()) {
        port_.activate(*this);
    }
}

// ---------------------------------------------------------------- the staging ring

/** Makes a ring. It lies next to the GPU of what is sent first, which will write it. */
void Link::offer_ring(const MemoryInfo &source) {
    const size_t bytes = port_.next_ring_bytes();
    const int node = source.needs_gpu() ? numa_node_of(source) : kAnyNumaNode;
    std::optional<StagingRingSender> made =
        bytes == 0 ? std::nullopt : StagingRingSender::create(bytes, node);
    if (!made) {
        drop_ring();
        return;
    }
    send_control(CellKind::ring_offer, RingOffer{made->cookie(), made->segment_fd()});
    port_.count_ring(static_cast<ptrdiff_t>(made->data_bytes()));
    tx_ring_ = std::move(made);
    ring_state_ = RingState::offered;
}

void Link::drop_ring() {
    if (tx_ring_) {
        port_.count_ring(-static_cast<ptrdiff_t>(tx_ring_->data_bytes()));
        tx_ring_.reset();
    }
    ring_state_ = RingState::refused;
}

void Link::receive_ring_offer(const RingOffer &offer) {
    if (rx_ring_) {
        GPUSHM_LOG(error, "process %d broke the protocol: it offered a second ring", peer_.pid);
        send_control(CellKind::ring_answer, RingAnswer{0});  // it would wait for ever
        return;
    }
    const char *why = "";
    rx_ring_ = StagingRingReceiver::attach(peer_.pid, offer.segment_fd, offer.cookie, &why);
    if (!rx_ring_) {
        GPUSHM_LOG(warn,
                   "cannot map the staging ring of process %d (%s): its messages come "
                   "more slowly",
                   peer_.pid, why);
    }
    send_control(CellKind::ring_answer, RingAnswer{rx_ring_ ? 1u : 0u});
}

void Link::receive_ring_answer(const RingAnswer &answer) {
    if (ring_state_ == RingState::offered) {
        if (answer.accepted != 0) {
            ring_state_ = RingState::ready;
            tx_ring_->close_segment_fd();
        } else {
            drop_ring();
        }
    }
}

unsigned char *Link::open_span(const RingSpan &span) {
    unsigned char *data = rx_ring_ ? rx_ring_->open(span) : nullptr;
    if (data == nullptr) {
        GPUSHM_LOG(error,
                   "process %d sent an impossible span of its staging ring: a message is "
                   "dropped; look for memory corruption in the job's processes",
                   peer_.pid);
    }
    return data;
}

void Link::close_span(const RingSpan &span) {
    rx_ring_->close(span);
}

}  // namespace gpushm
