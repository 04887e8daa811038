// SPDX-License-Identifier: BSD-3-Clause
// The mailbox: a bounded queue of fixed cells in one segment; many processes send, the owner
// receives.
//
// Layout of the segment (all offsets follow from the two numbers in the header):
//
//   MailboxHeader | SharedTransfer[kSharedTransfers] | SenderRecord[kMaxSenders] |
//   DirectWrites[kMaxSenders] | RegistrationList | Cell[cell_count] |
//   slot[cell_count], each kSlotOffset behind a multiple of 64
//
// A message of up to kInlineBytes lies in its cell (128 bytes, two cache lines, of which one of up
// to 48 bytes touches one); a longer one lies in the slot that belongs to the cell.
//
// Messages are numbered by tickets 0, 1, 2, ...; ticket t uses cell and slot t modulo cell_count.
//
//   sender                                              owner
//   1  reserving = t + 1
//   2  tail: t -> t + 1, compare-and-swap: t is his
//   3  fills cell and slot
//   4  Cell::state = t + 1  (release)  -------------->  polls the state of cell `head` (acquire)
//   5  reserving = 0, but for CellKind::close           uses the message
//   6  wakes the owner if step 2 saw the armed bit      head = t + 1  (release)
//
// So that a message costs few transfers between caches, every word has a line of its own and the
// owner never writes to a cell: the line of a cell moves to the sender and back once a message,
// tail and `reserving` stay with a single sender, and head moves once a round of the queue.
//
// Trust: whoever can write here is a process of the same user that may still be broken. The owner
// copies every word once, checks it, and at worst drops a message; it never follows a pointer,
// an index or a length from here unchecked. The sizes in the header are fixed at creation: both
// sides check them once at attach and use their own copies.
#pragma once

#include "core/base/cache_lines.hpp"
#include "core/base/message_payload.hpp"
#include "core/base/process.hpp"
#include "core/base/status.hpp"
#include "core/memory/registration_list.hpp"
#include "core/shm/direct_writes.hpp"
#include "core/shm/segment.hpp"
#include "core/shm/shared_transfer.hpp"
#include "core/shm/wake_socket.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace gpushm {

/** Changes with every change of what processes share; two processes talk only if it is equal. */
constexpr uint32_t kProtocolVersion = 17;

/** What a peer must know to reach a mailbox; travels inside addresses and sender records. */
struct MailboxAddress {
    Cookie cookie;
    int32_t pid = 0;
    int32_t segment_fd = -1;
    uint32_t protocol_version = kProtocolVersion;
};

/** Ids of active messages are below it: UCT_AM_ID_MAX of every UCX. */
constexpr uint8_t kActiveMessageIds = 32;

/** What a cell carries. The values are part of the protocol. */
enum class CellKind : uint8_t {
    am_inline = 1,      // active message, in the cell
    am_slot = 2,        // active message, in the slot
    am_ring = 3,        // active message, in the sender's staging ring: RingSpan in the cell
    ring_offer = 4,     // the sender made a staging ring: RingOffer in the cell
    ring_answer = 5,    // the answer to it: RingAnswer in the cell
    chunk_slot = 6,     // part of a transfer: TransferChunk in the cell, data in the slot
    chunk_ring = 7,     // the same, data in the sender's staging ring
    get_request = 8,    // GetRequest in the cell
    transfer_done = 9,  // TransferDone in the cell
    close = 10,  // the sender, whose own mailbox is closed, drops its link: nothing of it follows
    map_request = 11,   // MapRequest in the cell
    map_answer = 12,    // MapAnswer in the cell
    unmap_notice = 13,  // UnmapNotice in the cell
    help_request = 14,  // HelpRequest in the cell
    help_piece = 15,    // HelpPiece in the cell, data in the slot
    map_offer = 16,     // MapOffer in the cell
};

/** Whether its payload lies in the slot that belongs to the cell. */
constexpr bool carries_slot(CellKind kind) {
    return kind == CellKind::am_slot || kind == CellKind::chunk_slot ||
           kind == CellKind::help_piece;
}

constexpr bool known_kind(CellKind kind) {
    return kind >= CellKind::am_inline && kind <= CellKind::map_offer;
}

/** What a cell says of its message: one word, so that the owner uses what it has checked. Aligned
 * as one, without which clang calls libatomic. */
struct alignas(uint64_t) CellLabel {
    CellKind kind;
    uint8_t am_id;
    uint16_t sender;  // index of his SenderRecord
    uint32_t length;  // bytes of payload, inline or in the slot
};

/** One cell. All but `state`, and the slot, belongs to the sender that reserved the ticket until he
 * publishes it, and then to the owner until MailboxHeader::head passes the ticket. */
struct alignas(128) Cell {
    static constexpr size_t kBytes = 128;
    static constexpr size_t kInlineBytes = 112;

    /** t + 1 when ticket t is published. Written by the sender that reserved t only (store-release,
     * after everything else of the message), read by the owner only (acquire). At ticket h the
     * owner takes any value other than h + 1, such as one of a round before, for "not published".
     * A sender that dies before he writes it: see SenderRecord::reserving. */
    std::atomic<uint64_t> state;
    /** Relaxed on both sides: `state` orders it. */
    std::atomic<CellLabel> label;
    unsigned char payload[kInlineBytes];
};
static_assert(sizeof(Cell) == Cell::kBytes, "a cell is two cache lines");
static_assert(std::atomic<CellLabel>::is_always_lock_free, "processes share it");

/** Bytes of an inline payload that touch one line. */
constexpr size_t kInFirstLine = kLine - offsetof(Cell, payload);

/** Asks for the rest of an inline payload of `length` bytes. */
inline void prefetch_second_line(const Cell &cell, size_t length) {
    if (length > kInFirstLine) {
        prefetch_payload(cell.payload + kInFirstLine, kLine);
    }
}

/** How the owner finds the mailbox of a sender, to answer it.
 *
 * `owner` is 0 when free; a sender claims a record by compare-and-swap 0 -> pid << 1, writes
 * `address`, and stores pid << 1 | 1 (release). The owner reads `address` after an acquire load
 * that shows the low bit. Only the owner stores 0 (release): after the sender's CellKind::close, or
 * when the sender is dead and every ticket reserved by then was received or skipped, so that no
 * message is taken for one of the record's next holder. A sender that ends and finds no room for a
 * CellKind::close makes the record nobody's: pid << 1 | 1 -> 1 by compare-and-swap (release), the
 * last that it does here. The address stays, for the messages that wait; no process has the PID 0,
 * so the owner takes the sender for dead, and having seen the 1 (acquire) sees all that it had
 * reserved. A sender that dies while it claims is found as every dead one. */
struct alignas(128) SenderRecord {
    std::atomic<uint64_t> owner;
    MailboxAddress address;

    /** 1 when the owner has given up its link to the holder and answers it no more: written by the
     * owner (release), read (acquire) by the holder while it waits for anything. A new holder
     * stores 0 before the low bit of `owner`. Nobody else need be told: if the owner dies, or ends,
     * the holder sees that. */
    std::atomic<uint32_t> given_up;

    /** h + 1 while the sender may be about to reserve ticket h, or has reserved and not published
     * it; else 0, the ticket of an attempt that failed, or that of his CellKind::close. Written by
     * the record's holder only: h + 1 (relaxed) before each compare-and-swap of
     * MailboxHeader::tail, which releases it; 0 (release) after he has published, and when he gives
     * up. Thus he holds one reservation at a time. CellKind::close ends that: once it is published
     * the record may be freed and have a new holder, whose h + 1 he must not overwrite, so he
     * leaves the ticket as it is, which nobody waits for any more. A new holder stores 0 before the
     * low bit of `owner`.
     *
     * Read (acquire) by an owner who waits at ticket h, which tail shows as reserved and the cell
     * as unpublished, to learn whether anybody is left who may publish it. He skips h when no
     * record of a living process shows h + 1 and the cell, looked at once more after that, is still
     * unpublished. No message is lost by that: the sender S of h stored h + 1 before the
     * compare-and-swap that made tail > h; the owner's acquire load of tail saw that one or a
     * later read-modify-write (one release sequence), so he reads S's h + 1 or a later value of S.
     * S writes a later one, and his record gets another holder, only after he has published h: an
     * owner that reads it sees h published when he looks again. The same holds when S publishes and
     * dies before the owner asks for his life. And every death is noticed: another sender who shows
     * h + 1 has lost the compare-and-swap or will lose it, and then writes another ticket or 0;
     * while he lives and has not, the owner waits. */
    alignas(64) std::atomic<uint64_t> reserving;
};
static_assert(sizeof(SenderRecord) == 128, "a line for the owner, a line for the holder");

constexpr uint32_t kMaxSenders = 1024;

struct MailboxHeader {
    // Written once by the owner before anybody can attach (its address is not known before),
    // constant.
    uint64_t magic;
    uint32_t protocol_version;
    uint32_t cell_count;
    uint64_t slot_bytes;
    Cookie cookie;

    /** Next ticket to be reserved << 1 | armed. Senders add a ticket by compare-and-swap (acq_rel)
     * and keep the armed bit; tail - head <= cell_count.
     *
     * Armed means that the owner sleeps and wants to be woken (wake_socket.hpp). The owner sets
     * the bit by compare-and-swap (acq_rel) from exactly head << 1, that is when nothing is
     * reserved, and sleeps only then: whoever reserves later sees the bit in his own
     * compare-and-swap, because all modifications of one word have one order, so that sending
     * needs no fence. A sender that saw it clears it (acq_rel) after he has published, and wakes
     * the owner if it was still set. If he dies before he clears it, the next sender sees and
     * clears it; if he dies between clearing and waking, the owner sleeps until something else
     * wakes it.
     *
     * A sender checks that the ticket did not go back and is at most cell_count beyond head, and
     * otherwise takes the mailbox for full. The owner receives by the cells alone. */
    alignas(128) std::atomic<uint64_t> tail;
    static constexpr uint64_t kArmed = 1;

    /** Tickets below it are received or skipped, their cells may be written. Written by the owner
     * only (release, after the last use of the cell), read by senders (acquire), who keep a copy
     * and read it again when the mailbox is full by that copy. A value that goes back shows a
     * fuller mailbox, one beyond tail counts as full. If the owner dies the mailbox fills up. */
    alignas(128) std::atomic<uint64_t> head;

    /** 1 when the owner receives no more: written once by the owner (release), read (acquire) by
     * senders that wait for an answer. It stays readable where the segment is mapped. If the owner
     * dies it may stay 0: senders watch the process as well. */
    alignas(128) std::atomic<uint64_t> closed;

    /** Records below it were ever claimed, so that the owner looks at no others. Raised by
     * compare-and-swap (relaxed) by a sender that has claimed one, before the low bit of
     * SenderRecord::owner; read (relaxed) by any thread of the owner behind a fence (seq_cst),
     * which the sender's own in DirectWrites orders with it. A value that makes no sense counts as
     * kMaxSenders. A sender that dies before it raises it has written nothing. */
    alignas(128) std::atomic<uint32_t> senders;
};

/** A cell that the sender has reserved and fills. */
struct ReservedCell {
    Cell *cell = nullptr;
    uint64_t ticket = 0;
    bool armed = false;  // the owner wants to be woken
};

/** A message as the owner sees it: its own copies of the cell's words, checked. Payload pointers
 * stay valid until release(). */
struct ReceivedCell : CellLabel {  // sender < kMaxSenders, length <= kInlineBytes or slot_bytes
    unsigned char *payload;
    unsigned char *slot;  // null for a kind without one
};

/** UCP puts 8 bytes in front of the payload of most messages (ucp_eager_hdr_t,
 * src/ucp/tag/eager.h), which so begins with a line. CPUs copy that more quickly (4 KiB .64 us from
 * process to process instead of .74, streams of 2 KiB 10.5 GB/s instead of 9.9, Xeon of 2024), and
 * kernels by their widest words. */
constexpr size_t kSlotOffset = 56;

/** So many cells ahead of what is published the next one is fetched where messages of one line
 * follow each other; the cell behind it the owner polls, who would take it back. Else each
 * compare-and-swap waits for the line that was written before: 23 million messages of 8 bytes a
 * second instead of 20 (Xeon of 2024); of two lines 5 % less. */
constexpr uint64_t kCellsAhead = 2;

/** Sizes and places in a mailbox segment. */
struct MailboxGeometry {
    uint32_t cell_count;  // a power of two
    uint64_t slot_bytes;  // a multiple of 64

    static constexpr size_t kTransfersOffset = sizeof(MailboxHeader);
    static constexpr size_t kRecordsOffset =
        kTransfersOffset + kSharedTransfers * sizeof(SharedTransfer);
    static constexpr size_t kWritesOffset = kRecordsOffset + kMaxSenders * sizeof(SenderRecord);
    static constexpr size_t kRegistrationsOffset =
        kWritesOffset + kMaxSenders * sizeof(DirectWrites);
    static constexpr size_t kCellsOffset = kRegistrationsOffset + sizeof(RegistrationList);

    /** Whether a mailbox may have these sizes. */
    bool possible() const;
    static RegistrationList *registrations(unsigned char *base) {
        return reinterpret_cast<RegistrationList *>(base + kRegistrationsOffset);
    }
    /** From slot to slot. */
    uint64_t slot_stride() const { return slot_bytes + 64; }
    size_t segment_bytes() const {
        return kCellsOffset + cell_count * (sizeof(Cell) + slot_stride());
    }
    /** kMaxSenders of them. */
    static SenderRecord *sender_records(unsigned char *base) {
        return reinterpret_cast<SenderRecord *>(base + kRecordsOffset);
    }
    /** Of each sender. */
    static DirectWrites *direct_writes(unsigned char *base) {
        return reinterpret_cast<DirectWrites *>(base + kWritesOffset);
    }
    Cell *cell(unsigned char *base, uint64_t ticket) const {
        return reinterpret_cast<Cell *>(base + kCellsOffset) + (ticket & (cell_count - 1));
    }
    unsigned char *slot(unsigned char *base, uint64_t ticket) const {
        return base + kCellsOffset + cell_count * sizeof(Cell) +
               (ticket & (cell_count - 1)) * slot_stride() + kSlotOffset;
    }
};
static_assert(MailboxGeometry::kTransfersOffset <= 4096,
              "Segment::discard() leaves the header as it is");
static_assert(MailboxGeometry::kRecordsOffset % alignof(SenderRecord) == 0,
              "records lie on lines of their own");
static_assert(MailboxGeometry::kCellsOffset % alignof(Cell) == 0, "so do cells");

/** The owner's side. One thread at a time. */
class MailboxReceiver {
public:
    /** Empty, logged, when the sizes are impossible or there is no memory or no descriptor left. */
    static std::optional<MailboxReceiver> create(uint32_t cell_count, uint64_t slot_bytes);

    /** Of the owner's process. */
    RegistrationList *registrations() const {
        return MailboxGeometry::registrations(segment_.data());
    }

    /** A sender that writes a registration by itself. */
    struct Writer {
        uint16_t sender;
        pid_t pid;
    };
    /** One from `first` on that lives, if it does so; any thread, after
     * RegistrationTable::remove(). */
    std::optional<Writer> find_writer(uint64_t registration, uint32_t first) const;
    /** Whether a sender writes that registration, alive or not. */
    bool writes(uint16_t sender, uint64_t registration) const {
        return MailboxGeometry::direct_writes(segment_.data())[sender].contain(registration);
    }
    MailboxAddress address() const;
    size_t slot_bytes() const { return geometry_.slot_bytes; }

    /** The oldest message, if there is one. A message that breaks the protocol is dropped here,
     * with a line in the log once; then false, though there may be others. */
    bool receive(ReceivedCell *message) {
        if (empty()) {
            return false;
        }
        const bool taken = take(message);
        if (!taken) {
            drop_broken(*message);
        }
        return taken;
    }
    /** As receive(), but takes only an active message that lies in its cell, as most do. */
    bool receive_inline(CellLabel *label, unsigned char **payload) {
        if (empty()) {
            return false;
        }
        *label = head_cell_->label.load(std::memory_order_relaxed);
        *payload = head_cell_->payload;
        // Of a message in its slot, too: 1 and 4 KiB take 4 % longer without, it is not known why
        // (EPYC 9004).
        prefetch_second_line(*head_cell_, label->length);
        return label->kind == CellKind::am_inline && label->length <= Cell::kInlineBytes &&
               label->sender < kMaxSenders;
    }
    /** Asks for what lies behind the next message, which is likely to be like it, as far as senders
     * have reserved tickets below `reserved_end`: they have written it or are about to. Streams of
     * 1 KiB 8.6 GB/s instead of 6.2, of 512 bytes 7.1 instead of 5.5 (Xeon of 2024). */
    void fetch_backlog(uint64_t reserved_end) const {
        constexpr uint64_t kCells = 2;
        if (head_ + kCells + 1 < reserved_end) {
            __builtin_prefetch(geometry_.cell(segment_.data(), head_ + kCells));
            const CellLabel next = head_cell_->label.load(std::memory_order_relaxed);
            if (carries_slot(next.kind)) {
                prefetch_payload(geometry_.slot(segment_.data(), head_ + 1), next.length);
            }
        }
    }
    /** Gives the cell of the last message back to the senders. */
    void release() {
        ++head_;
        head_cell_ = geometry_.cell(segment_.data(), head_);
        header()->head.store(head_, std::memory_order_release);
    }
    /** Whether receive() would find something now. */
    bool empty() const { return head_cell_->state.load(std::memory_order_acquire) != head_ + 1; }

    /** What [source, +length) is of the message that receive() returned and release() did not give
     * back: its payload, or part of it, or nothing. */
    MessagePayload payload_at(const void *source, size_t length) const;
    /** If that is all from there on, the same of the message behind it: nothing if none is there,
     * or it is no active message in its slot. What is copied in pieces says nothing of what comes
     * next. */
    MessagePayload payload_behind(const MessagePayload &payload) const;

    /** Tickets below it are reserved, received or skipped; at most cell_count beyond head(). */
    uint64_t reserved_tickets() const;
    /** Tickets below it are received or skipped. */
    uint64_t head() const { return head_; }

    /** Skips the oldest ticket when it is reserved and its sender is dead, so that it will never be
     * published; false when there is none to skip. Slow when the oldest ticket is reserved and not
     * published: reads all sender records and makes a few system calls. */
    bool skip_dead_sender();

    /** `index` < kSharedTransfers. */
    SharedTransfer &shared_transfer(uint32_t index) const;

    /** For many messages in slots: Segment::populate(). */
    void populate() { segment_.populate(); }

    /** Senders learn that nothing is received any more. */
    void close();
    /** At the very end: what senders may still map takes no memory. */
    void discard() { segment_.discard(); }

    /** The address that a sender wrote into its record. Empty for a record that is not in use. */
    std::optional<MailboxAddress> sender_address(uint16_t sender) const;
    void free_sender(uint16_t sender);
    /** Tells a sender that its link is given up here. */
    void give_up(uint16_t sender);
    /** Whether the mailbox `cookie` is that of a sender with a record. Reads all records. */
    bool has_sender(const Cookie &cookie) const;
    /** Looks at the next record in use, a few system calls; its index when its process is dead, or
     * it is nobody's, and nothing is reserved or published here, so that the caller may free it. */
    std::optional<uint16_t> find_dead_sender();

    /** Readable when a sender found the mailbox armed. */
    int event_fd() const { return wake_socket_.fd(); }
    /** Makes event_fd() unreadable and asks to be woken at the next message. False when there is
     * one already, or a sender has reserved a cell and is about to publish it. */
    bool arm();

private:
    MailboxReceiver(Segment segment, MailboxGeometry geometry, const Cookie &cookie,
                    WakeSocket wake_socket);
    MailboxHeader *header() const { return reinterpret_cast<MailboxHeader *>(segment_.data()); }
    SenderRecord *sender_records() const;
    /** Of a cell that is published; false when it breaks the protocol. */
    bool take(ReceivedCell *message);
    void drop_broken(const ReceivedCell &message);
    uint64_t unreceived_tickets() const;
    uint64_t message_number(uint64_t ticket) const { return first_number_ + ticket; }

    uint64_t first_number_;  // of ticket 0: MessagePayload::message
    Segment segment_;
    MailboxGeometry geometry_;
    Cookie cookie_;
    WakeSocket wake_socket_;
    uint64_t head_ = 0;  // the ticket that is received next
    Cell *head_cell_;
    uint16_t next_watched_ = 0;  // the record that find_dead_sender looks at next
};

/** A sender's side. One thread at a time. */
class MailboxSender {
public:
    /** Attaches to the mailbox at `peer` and leaves `self` there for answers. Empty, with the
     * reason in `*why` (static text), when the peer cannot be reached. */
    static std::optional<MailboxSender> attach(const MailboxAddress &peer,
                                               const MailboxAddress &self, const char **why);
    size_t slot_bytes() const { return geometry_.slot_bytes; }

    /** A transfer of the mailbox's owner; `index` < kSharedTransfers. */
    SharedTransfer &shared_transfer(uint32_t index) const;

    /** False when the mailbox is full (or its words make no sense). A cell that was reserved must
     * be published before the next one is reserved, and without waiting for anything in between: it
     * holds up everybody behind it. */
    bool reserve(ReservedCell *reserved);
    /** Where a payload that does not lie in the cell begins. */
    unsigned char *slot(const ReservedCell &reserved) const {
        return geometry_.slot(segment_.data(), reserved.ticket);
    }
    void publish(const ReservedCell &reserved, CellKind kind, uint8_t am_id, uint32_t length);
    /** A message of the mailbox's owner came. If those before were answered one by one, and the
     * last one by what takes one line, the cell of the answer is fetched while the message is
     * looked at: then true. The owner, who polls that cell, has it back after another transfer
     * between caches, so this pays for answers within some 50 ns: 8 bytes take .145 us from process
     * to process instead of .169, in Open MPI .151 instead of .182 (Xeon of 2024). Not for two
     * lines: the owner would get the other one with it, for adjacent lines come together (64 bytes
     * .15 to .30 us instead of .17); nor for more, which takes longer to write (1 KiB .37 us
     * instead of .34). */
    bool expect_answer() {
        answers_ &= !has_to_answer_;
        has_to_answer_ = true;
        if (answers_) {
            prefetch_for_write(geometry_.cell(segment_.data(), next_ticket_));
        }
        return answers_;
    }
    /** Two messages will be sent at once, the second one by its slot: what they write is fetched
     * meanwhile. The first one's cell the owner polls and may have back before. */
    void expect_two_messages() const;
    /** At the end, in place of a CellKind::close for which there is no room: the owner frees the
     * record when it has received everything. Nothing may be reserved then or later. */
    void abandon();
    /** Whether reserve() would succeed now. */
    bool has_room() const;
    /** Messages that the owner has not received, as far as this sender has seen: of others only
     * those before its last. */
    uint64_t backlog() const {
        const uint64_t head = header()->head.load(std::memory_order_acquire);
        return head < next_ticket_ ? next_ticket_ - head : 0;
    }
    uint64_t cell_count() const { return geometry_.cell_count; }
    /** Whether the owner has received, by its own word, what was published with this ticket. */
    bool is_received(uint64_t ticket) const {
        return header()->head.load(std::memory_order_acquire) > ticket;
    }
    /** Whether its words can be what senders and owner have written. If not, it stays full. */
    bool makes_sense() const;

    /** For many messages in slots: Segment::populate(). */
    void populate() { segment_.populate(); }

    /** Gives the memory of a dead owner's mailbox back: he cannot any more. */
    void discard() { segment_.discard(); }

    /** Whether the owner has given this sender up. */
    bool is_given_up() const { return record()->given_up.load(std::memory_order_acquire) != 0; }
    /** Whether the owner receives no more. */
    bool closed() const { return header()->closed.load(std::memory_order_acquire) != 0; }
    /** Of the owner's process. */
    const RegistrationList &registrations() const {
        return *MailboxGeometry::registrations(segment_.data());
    }
    /** Of this sender. */
    DirectWrites *direct_writes() const {
        return MailboxGeometry::direct_writes(segment_.data()) + sender_;
    }

private:
    MailboxSender(Segment segment, MailboxGeometry geometry, const Cookie &owner, uint16_t sender);
    MailboxHeader *header() const { return reinterpret_cast<MailboxHeader *>(segment_.data()); }
    SenderRecord *record() const;
    bool try_reserve(uint64_t *tail, ReservedCell *reserved);
    bool reserve_again(uint64_t tail, ReservedCell *reserved);
    bool find_room(uint64_t *tail, uint64_t *head) const;
    bool read_again(uint64_t *tail, uint64_t *head) const;
    /** The cell of this ticket is free, as far as is known here: the owner has read what was in it.
     */
    bool is_free(uint64_t ticket) const { return ticket - head_ < geometry_.cell_count; }
    void prefetch_like(uint64_t ticket, CellKind kind, size_t length) const;
    void wake_owner();

    Segment segment_;
    MailboxGeometry geometry_;
    Cookie owner_;
    uint16_t sender_;
    size_t most_fetched_;         // bytes of a slot
    uint64_t next_ticket_ = 0;    // tail was seen here: it cannot be below
    uint64_t head_ = 0;           // MailboxHeader::head when it was read last
    bool alone_ = false;          // no other sender came between the last two messages
    bool has_to_answer_ = false;  // a message of the owner came, and nothing was sent since
    bool answers_ = false;  // the one before was answered before another one came, by one line
};

// ---------------------------------------------------------------- what each message takes

inline bool MailboxReceiver::take(ReceivedCell *message) {
    Cell *const cell = head_cell_;
    static_cast<CellLabel &>(*message) = cell->label.load(std::memory_order_relaxed);
    message->payload = cell->payload;
    message->slot = nullptr;
    size_t limit = Cell::kInlineBytes;
    const bool in_slot = carries_slot(message->kind);
    if (in_slot) {
        message->slot = geometry_.slot(segment_.data(), head_);
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

inline SenderRecord *MailboxSender::record() const {
    return MailboxGeometry::sender_records(segment_.data()) + sender_;
}

/** Of the ticket in `*tail`, for which there is room. False: another sender was first, `*tail` is
 * his. */
inline bool MailboxSender::try_reserve(uint64_t *tail, ReservedCell *reserved) {
    const uint64_t ticket = *tail >> 1;
    Cell *const cell = geometry_.cell(segment_.data(), ticket);
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

inline bool MailboxSender::reserve(ReservedCell *reserved) {
    uint64_t tail = next_ticket_ << 1;  // a guess: right when no other sender came between
    return (is_free(next_ticket_) && try_reserve(&tail, reserved)) || reserve_again(tail, reserved);
}

inline void MailboxSender::publish(const ReservedCell &reserved, CellKind kind, uint8_t am_id,
                                   uint32_t length) {
    Cell *const cell = reserved.cell;
    cell->label.store({kind, am_id, sender_, length}, std::memory_order_relaxed);
    cell->state.store(reserved.ticket + 1, std::memory_order_release);
    if (kind != CellKind::close) {  // from then on the record may be another's
        record()->reserving.store(0, std::memory_order_release);
    }
    if (reserved.armed) {
        wake_owner();
    }
    const bool is_answer = std::exchange(has_to_answer_, false);
    if (is_answer) {
        answers_ = alone_ && length <= kInFirstLine;
    }
    if (!alone_) {
        return;
    }
    if (carries_slot(kind) || length > kInFirstLine) {
        prefetch_like(reserved.ticket + 1, kind, length);
    } else if (!is_answer && is_free(reserved.ticket + kCellsAhead)) {
        prefetch_for_write(geometry_.cell(segment_.data(), reserved.ticket + kCellsAhead));
    }
}

}  // namespace gpushm
