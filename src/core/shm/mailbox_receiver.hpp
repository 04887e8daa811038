// SPDX-License-Identifier: BSD-3-Clause
// The owner's side of a mailbox.
#pragma once

#include "core/base/cache_lines.hpp"
#include "core/base/message_payload.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_memory.hpp"
#include "core/shm/wake_socket.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** A message as the owner sees it: its own copies of the cell's words, checked: sender <
 * kMaxSenders, length <= kInlineBytes or slot_bytes. Payload pointers stay valid until
 * MailboxReceiver::release(). */
struct ReceivedCell : CellLabel {
    unsigned char *payload;
    unsigned char *slot;  // null for a kind without one
};

/** One thread at a time. */
class MailboxReceiver : public MailboxMemory {
public:
    /** Empty, logged, when the sizes are impossible or there is no memory or no descriptor left. */
    static std::optional<MailboxReceiver> create(uint32_t cell_count, uint64_t slot_bytes);

    MailboxAddress address() const;

    // ---- messages

    /** Takes the oldest message; false when there is none. A message that breaks the protocol is
     * dropped, with one line in the log for all of them; then the answer is false although other
     * messages may be there. */
    bool receive(ReceivedCell *message);
    /** Takes the oldest message if it is an active message that lies in its cell, as most are. */
    bool receive_inline(CellLabel *label, unsigned char **payload);
    /** Prefetches what lies behind the next message, which is likely to be of the same kind. Only
     * tickets below `reserved_end` (reserved_tickets()) are touched: senders have written them or
     * are about to. */
    void fetch_backlog(uint64_t reserved_end) const;
    /** Gives the cell of the last message back to the senders. */
    void release() {
        ++head_;
        head_cell_ = cell_of(head_);
        header()->head.store(head_, std::memory_order_release);
    }
    /** Whether receive() would find nothing now. */
    bool empty() const { return head_cell_->state.load(std::memory_order_acquire) != head_ + 1; }

    /** The part of the received, not yet released message that [source, +length) is; none when the
     * range does not lie in its slot. */
    MessagePayload payload_at(const void *source, size_t length) const;
    /** If `payload` reaches to the end of its message: the payload of the next message from the
     * same offset on. None when the next message is not there or is no active message in its
     * slot. */
    MessagePayload payload_behind(const MessagePayload &payload) const;

    /** Tickets below it are reserved, received or skipped; at most cell_count beyond head(). */
    uint64_t reserved_tickets() const;
    /** Tickets below it are received or skipped. */
    uint64_t head() const { return head_; }

    /** Skips the oldest ticket when it is reserved and its sender died before it published it;
     * false when there is none to skip. Slow when the oldest ticket is reserved and not published:
     * reads all sender records and makes a few system calls. */
    bool skip_dead_sender();

    /** Readable when a sender found the mailbox armed. */
    int event_fd() const { return wake_socket_.fd(); }
    /** Makes event_fd() unreadable and asks to be woken at the next message. False when there is
     * one already, or a sender has reserved a cell and is about to publish it. */
    bool arm();

    // ---- senders

    /** The address that a sender wrote into its record. Empty for a record that is not in use. */
    std::optional<MailboxAddress> sender_address(uint16_t sender) const;
    void free_sender(uint16_t sender);
    /** Tells a sender that this process has given its connection up. */
    void give_up(uint16_t sender);
    /** Whether a record belongs to the process whose mailbox has this cookie. Reads all records. */
    bool has_sender(const Cookie &cookie) const;
    /** Looks at the next record in use; a few system calls. Returns its index when its process is
     * dead or it is kNobody's, and nothing is reserved or published here: the caller may free it.
     */
    std::optional<uint16_t> find_dead_sender();

    // ---- memory of this process that senders read and write by themselves

    /** A sender that writes a registration by itself. */
    struct Writer {
        uint16_t sender;
        pid_t pid;
    };
    /** A living sender, with an index of at least `first`, that writes the registration. Any
     * thread, after RegistrationTable::remove(). */
    std::optional<Writer> find_writer(uint64_t registration, uint32_t first) const;
    /** Whether a sender writes that registration, alive or not. */
    bool writes(uint16_t sender, uint64_t registration) const {
        return MailboxGeometry::direct_writes(segment_.data())[sender].contain(registration);
    }

    /** Tells senders that nothing is received any more. */
    void close();

private:
    MailboxReceiver(Segment segment, MailboxGeometry geometry, const Cookie &cookie,
                    WakeSocket wake_socket);
    static void prefetch_second_line(const Cell &cell, size_t length);
    /** Of a cell that is published; false when it breaks the protocol. */
    bool take(ReceivedCell *message);
    void drop_broken(const ReceivedCell &message);
    uint64_t unreceived_tickets() const;
    uint64_t message_number(uint64_t ticket) const { return first_number_ + ticket; }

    uint64_t first_number_;  // of ticket 0: MessagePayload::message
    Cookie cookie_;
    WakeSocket wake_socket_;
    uint64_t head_ = 0;  // the ticket that is received next
    Cell *head_cell_;
    uint16_t next_watched_ = 0;  // the record that find_dead_sender looks at next
};

// ---------------------------------------------------------------- inline: for every message

/** Prefetches the rest of an inline payload of `length` bytes. */
inline void MailboxReceiver::prefetch_second_line(const Cell &cell, size_t length) {
    if (length > kInFirstLine) {
        prefetch_payload(cell.payload + kInFirstLine, kLine);
    }
}

inline bool MailboxReceiver::take(ReceivedCell *message) {
    Cell *const cell = head_cell_;
    static_cast<CellLabel &>(*message) = cell->label.load(std::memory_order_relaxed);
    message->payload = cell->payload;
    message->slot = nullptr;
    size_t limit = Cell::kInlineBytes;
    const bool in_slot = carries_slot(message->kind);
    if (in_slot) {
        message->slot = slot_of(head_);
        limit = geometry_.slot_bytes;
    }
    if (!known_kind(message->kind) || message->length > limit || message->sender >= kMaxSenders) {
        return false;
    }
    if (in_slot) {
        prefetch_payload(message->slot, message->length);
    } else {
        prefetch_second_line(*cell, message->length);
    }
    return true;
}

inline bool MailboxReceiver::receive(ReceivedCell *message) {
    if (empty()) {
        return false;
    }
    const bool taken = take(message);
    if (!taken) {
        drop_broken(*message);
    }
    return taken;
}

inline bool MailboxReceiver::receive_inline(CellLabel *label, unsigned char **payload) {
    if (empty()) {
        return false;
    }
    *label = head_cell_->label.load(std::memory_order_relaxed);
    *payload = head_cell_->payload;
    // Also for a message in its slot (doc/decisions/shm-cache-lines.md).
    prefetch_second_line(*head_cell_, label->length);
    return label->kind == CellKind::am_inline && label->length <= Cell::kInlineBytes &&
           label->sender < kMaxSenders;
}

inline void MailboxReceiver::fetch_backlog(uint64_t reserved_end) const {
    constexpr uint64_t kCells = 2;  // doc/decisions/shm-cache-lines.md
    if (head_ + kCells + 1 < reserved_end) {
        __builtin_prefetch(cell_of(head_ + kCells));
        const CellLabel next = head_cell_->label.load(std::memory_order_relaxed);
        if (carries_slot(next.kind)) {
            prefetch_payload(slot_of(head_ + 1), next.length);
        }
    }
}

}  // namespace gpushm
