// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/message_sender.hpp"

#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"

namespace gpushm {
namespace {

thread_local MessageSender *sender_that_packs = nullptr;

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

// ---------------------------------------------------------------- host memory

Status MessageSender::send_short_pieces(uint8_t am_id, const Piece *pieces, size_t piece_count) {
    Message message = {am_id, nullptr, 0, pieces, piece_count, 0};
    for (size_t i = 0; i < piece_count; ++i) {
        message.length += pieces[i].length;
    }
    return message.length <= Cell::kInlineBytes ? send_host_pieces(message) : Status::invalid;
}

Status MessageSender::send_packed(uint8_t am_id, Pack pack, void *argument, size_t *packed_length) {
    MailboxSender &mailbox = channel_.mailbox;
    const Status status = check_sendable();
    if (status != Status::ok) {
        return status;
    }
    ReservedCell reserved;
    if (!mailbox.reserve(&reserved)) {
        return Status::no_resource;
    }
    sender_that_packs = this;
    *packed_length = pack(mailbox.slot(reserved), argument);
    sender_that_packs = nullptr;
    mailbox.publish(reserved, CellKind::am_slot, am_id, static_cast<uint32_t>(*packed_length));
    if (ring_.speculation().has_plan()) {
        ring_.begin_planned_copy();
    }
    return Status::ok;
}

MessageSender *MessageSender::packing() {
    return sender_that_packs;
}

uint64_t MessageSender::plan_speculative_copy(const void *address, size_t length, bool by_gpu) {
    const SpeculativeCopies &speculation = ring_.speculation();
    if (length == 0 || !ring_.is_ready() || speculation.has_plan() ||
        !speculation.are_likely(by_gpu)) {
        return 0;
    }
    const MemoryInfo info = query_memory(address);
    if (!by_gpu && direct_.is_for_push(info, address, length)) {
        return 0;
    }
    return ring_.plan_copy({0, static_cast<const unsigned char *>(address), length, info, by_gpu});
}

// ---------------------------------------------------------------- any memory

Status MessageSender::send_pieces(uint8_t am_id, const void *header, size_t header_length,
                                  const Piece *pieces, size_t piece_count, const void *owner,
                                  const Completion &completion) {
    if (channel_.failed) {
        return Status::peer_failed;
    }
    if (piece_count > kMaxPieces) {
        return Status::invalid;
    }
    Message message = {am_id, header, header_length, pieces, piece_count, header_length};
    GpuSides gpu_sides = {};
    const MemoryInfo *on_gpu = nullptr;  // one of the pieces that a GPU copies
    for (size_t i = 0; i < piece_count; ++i) {
        message.length += pieces[i].length;
        if (pieces[i].length != 0) {
            const MemoryInfo info = query_memory(pieces[i].address);
            if (gpu_copies(info, pieces[i].address, pieces[i].length)) {
                on_gpu = &gpu_sides[i].emplace(info);
            }
        }
    }
    if (message.length > kSlotBytes) {
        return Status::invalid;
    }
    if (on_gpu == nullptr) {
        return send_host_pieces(message);
    }
    if (ring_.is_unknown()) {
        ring_.offer(*on_gpu);
    }
    if (ring_.is_ready() && !operations_.fence_pending() &&
        message.length <= ring_.longest_message()) {
        return send_by_ring(message, gpu_sides, owner, completion);
    }
    return send_gathered(message);
}

Status MessageSender::send_by_ring(const Message &message, const GpuSides &gpu_sides,
                                   const void *owner, const Completion &completion) {
    const Status status =
        ring_.add_message(message.length, owner, message.piece_count, [&](OutgoingSpan &out) {
            out.am_id = message.am_id;
            if (!fill(out, message, gpu_sides)) {
                return false;
            }
            Operation operation = {owner, completion};
            operation.is_message = true;
            out.operation = operations_.start(std::move(operation));
            return true;
        });
    return status == Status::ok ? Status::in_progress : status;
}

/** Copies host parts, starts the copies of GPU parts; false when one could not be started. */
bool MessageSender::fill(OutgoingSpan &out, const Message &message, const GpuSides &gpu_sides) {
    unsigned char *destination = ring_.data(out);
    destination = append(destination, message.header, message.header_length);
    bool started = true;
    for (size_t i = 0; i < message.piece_count && started; ++i) {
        const Piece &piece = message.pieces[i];
        const std::optional<MemoryInfo> &gpu_side = gpu_sides[i];
        if (gpu_side) {
            started = ring_.fill_by_gpu(out, destination, piece.address, piece.length, *gpu_side);
        } else if (piece.length != 0) {
            memcpy(destination, piece.address, piece.length);
        }
        destination += piece.length;
    }
    return started;
}

Status MessageSender::send_host_pieces(const Message &message) {
    MailboxSender &mailbox = channel_.mailbox;
    const Status sendable = check_sendable();
    const bool fits_cell = message.length <= Cell::kInlineBytes;
    ReservedCell reserved;
    if (sendable != Status::ok ||
        !mailbox.reserve(&reserved, fits_cell ? Room::cell : Room::slot)) {
        return sendable != Status::ok ? sendable : Status::no_resource;
    }
    unsigned char *destination = fits_cell ? reserved.cell->payload : mailbox.slot(reserved);
    destination = append(destination, message.header, message.header_length);
    append(destination, message.pieces, message.piece_count);
    mailbox.publish(reserved, fits_cell ? CellKind::am_inline : CellKind::am_slot, message.am_id,
                    static_cast<uint32_t>(message.length));
    return Status::ok;
}

/** Gathers the message first, so that no GPU copy runs while a cell is reserved. */
Status MessageSender::send_gathered(const Message &message) {
    const Status sendable = check_sendable();
    if (sendable != Status::ok || !channel_.mailbox.has_room()) {
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

}  // namespace gpushm
