// SPDX-License-Identifier: BSD-3-Clause
// A sender's side of a mailbox.
#pragma once

#include "core/base/cache_lines.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace gpushm {

/** A cell that the sender has reserved and fills. */
struct ReservedCell {
    Cell *cell = nullptr;
    uint64_t ticket = 0;
    bool armed = false;  // the owner wants to be woken
};

/** What a message takes in a mailbox. */
enum class Room { cell, slot };

constexpr Room room_of(CellKind kind) {
    return carries_slot(kind) ? Room::slot : Room::cell;
}

/** One thread at a time. */
class MailboxSender : public MailboxMemory {
public:
    /** Attaches to the mailbox at `peer` and leaves `self` there for answers. Empty, with the
     * reason in `*why` (static text), when the peer cannot be reached. */
    static std::optional<MailboxSender> attach(const MailboxAddress &peer,
                                               const MailboxAddress &self, const char **why);

    // ---- messages

    /** False when there is no such room, or the words of the mailbox make no sense. A reserved cell
     * must be published before the next one is reserved, and without waiting for anything in
     * between: it delays all messages behind it. */
    bool reserve(ReservedCell *reserved, Room room = Room::slot) {
        uint64_t tail = next_ticket_ << 1;  // a guess: right when no other sender came between
        return (is_free(next_ticket_, room) && try_reserve(&tail, reserved)) ||
               reserve_again(tail, reserved, room);
    }
    /** Where the payload begins of what was reserved with Room::slot. */
    unsigned char *slot(const ReservedCell &reserved) const { return slot_of(reserved.ticket); }
    void publish(const ReservedCell &reserved, CellKind kind, uint8_t am_id, uint32_t length);
    /** Whether reserve() would succeed now. If there is no slot, others leave one free soon, as for
     * reserve(). */
    bool has_room(Room room = Room::slot) const;

    /** A message of the mailbox's owner came. When the messages before it were answered one by one,
     * and the last answer took one line, this prefetches the cell of the answer while the caller
     * looks at the message, and returns true. The owner polls that cell, so this pays only for
     * answers that follow quickly and take one line: doc/decisions/shm-cache-lines.md. */
    bool expect_answer() {
        answers_ &= !has_to_answer_;
        has_to_answer_ = true;
        if (answers_) {
            prefetch_for_write(cell_of(next_ticket_));
        }
        return answers_;
    }
    /** Two messages will be sent at once, the second one by its slot: this prefetches what they
     * write. The owner, which polls the first one's cell, may fetch that line back before. */
    void expect_two_messages() const;

    // ---- the owner

    /** Whether the words are possible values. If not, the mailbox stays full. */
    bool makes_sense() const;
    /** Whether the owner has given this sender up. */
    bool is_given_up() const { return record()->given_up.load(std::memory_order_acquire) != 0; }
    /** Whether the owner receives no more. */
    bool closed() const { return header()->closed.load(std::memory_order_acquire) != 0; }

    /** Which memory of the owner this sender writes by itself. */
    DirectWrites *direct_writes() const {
        return MailboxGeometry::direct_writes(segment_.data()) + sender_;
    }

    /** Ends the use of the mailbox, in place of a CellKind::close for which there is no room: the
     * owner frees the record when it has received everything. Nothing may be reserved then or
     * later. */
    void abandon();

private:
    MailboxSender(Segment segment, MailboxGeometry geometry, const Cookie &owner, uint16_t sender);
    SenderRecord *record() const { return sender_records() + sender_; }
    bool try_reserve(uint64_t *tail, ReservedCell *reserved);
    bool reserve_again(uint64_t tail, ReservedCell *reserved, Room room);
    /** Up to where the owner has read, and how many messages may wait, when that was read last. */
    struct Seen {
        uint64_t head = 0;
        uint64_t most = 0;
    };
    bool find_room(uint64_t *tail, Seen *seen, Room room) const;
    bool read_again(uint64_t *tail, Seen *seen, Room room) const;
    void ask_for_slots(uint64_t ticket) const;
    bool has_room_at(uint64_t ticket, const Seen &seen, Room room) const {
        const uint64_t slots = geometry_.slot_count();
        return ticket - seen.head < (room == Room::slot ? slots : seen.most);
    }
    /** Whether the owner has read what was in the cell or slot of this ticket, as far as is known
     * here. */
    bool is_free(uint64_t ticket, Room room) const { return has_room_at(ticket, seen_, room); }
    void prefetch_next(uint64_t published, CellKind kind, size_t length, bool is_answer) const;
    void prefetch_like(uint64_t ticket, CellKind kind, size_t length) const;
    void wake_owner();

    Cookie owner_;
    uint16_t sender_;
    size_t max_prefetch_;       // bytes of a slot
    uint64_t next_ticket_ = 0;  // tail was seen here: it cannot be below
    Seen seen_;
    bool alone_ = false;          // no other sender came between the last two messages
    bool has_to_answer_ = false;  // a message of the owner came, and nothing was sent since
    bool answers_ = false;  // the previous one was answered before the next one came, by one line
};

// ---------------------------------------------------------------- inline: for every message

/** Reserves the ticket in `*tail`, for which there is room. False: another sender was first, and
 * `*tail` is the new value. */
inline bool MailboxSender::try_reserve(uint64_t *tail, ReservedCell *reserved) {
    const uint64_t ticket = MailboxHeader::ticket_of(*tail);
    Cell *const cell = cell_of(ticket);
    prefetch_for_write(cell);
    record()->reserving.store(ticket + 1, std::memory_order_relaxed);
    if (!header()->tail.compare_exchange_strong(*tail, *tail + 2, std::memory_order_acq_rel,
                                                std::memory_order_relaxed)) {
        return false;
    }
    alone_ = ticket == next_ticket_;
    next_ticket_ = ticket + 1;
    *reserved = {cell, ticket, (*tail & MailboxHeader::kArmed) != 0};
    return true;
}

/** Prefetches what the next message is likely to write, when no other sender interferes. */
inline void MailboxSender::prefetch_next(uint64_t published, CellKind kind, size_t length,
                                         bool is_answer) const {
    constexpr uint64_t kCellsAhead = 2;  // doc/decisions/shm-cache-lines.md
    if (!alone_) {
        return;
    }
    if (carries_slot(kind) || length > kInFirstLine) {
        prefetch_like(published + 1, kind, length);
    } else if (!is_answer && is_free(published + kCellsAhead, Room::cell)) {
        prefetch_for_write(cell_of(published + kCellsAhead));
    }
}

inline void MailboxSender::publish(const ReservedCell &reserved, CellKind kind, uint8_t am_id,
                                   uint32_t length) {
    Cell *const cell = reserved.cell;
    cell->label.store({kind, am_id, sender_, length}, std::memory_order_relaxed);
    cell->state.store(reserved.ticket + 1, std::memory_order_release);
    if (kind != CellKind::close) {  // after it the record may be another sender's
        record()->reserving.store(0, std::memory_order_release);
    }
    if (reserved.armed) {
        wake_owner();
    }
    const bool is_answer = std::exchange(has_to_answer_, false);
    if (is_answer) {
        answers_ = alone_ && length <= kInFirstLine;
    }
    prefetch_next(reserved.ticket, kind, length, is_answer);
}

}  // namespace gpushm
