// SPDX-License-Identifier: BSD-3-Clause
// The mailbox: a bounded queue of fixed cells in one segment; many processes send, the owner receives.
//
// Layout of the segment (all offsets follow from the two numbers in the header):
//
//   MailboxHeader | SenderRecord[kMaxSenders] | Cell[cell_count] | slot[cell_count]
//
// A message of up to kInlineBytes lies in its cell (128 bytes, two cache lines, of which an 8-byte
// message touches one); a longer one lies in the slot that belongs to the cell.
//
// Trust: whoever can write here is a process of the same user that may still be broken. The owner
// copies every word once, checks it, and at worst drops a message; it never follows a pointer,
// an index or a length from here unchecked. The sizes in the header are fixed at creation: both sides
// check them once at attach and use their own copies.
#pragma once

#include "core/process.hpp"
#include "core/segment.hpp"
#include "core/status.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Changes with every change of what processes share; two processes talk only if it is equal. */
constexpr uint32_t kProtocolVersion = 1;

/** What a peer must know to reach a mailbox; travels inside addresses and sender records. */
struct MailboxAddress {
    Cookie cookie;
    int32_t pid = 0;
    int32_t segment_fd = -1;
    int32_t wake_fd = -1;
    uint32_t protocol_version = kProtocolVersion;
};

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
    close = 10,         // the sender drops its link: nothing of it follows
};

/** One cell. `state` is the only word on which both sides synchronise; everything else in the cell
 *  and in its slot belongs to whom the state says. */
struct Cell {
    static constexpr size_t kBytes = 128;
    static constexpr size_t kInlineBytes = 112;

    /** ticket << 18 | sender << 2 | phase. Cell i serves tickets i, i + cell_count, ...
     *
     *  free(t)      -> reserved(t, s)   by sender s, compare-and-swap (acquire): the cell is his, and
     *                                   the word says whose, so that a death right here is seen
     *  reserved(t)  -> published(t, s)  by that sender, sequentially consistent exchange: his writes
     *                                   are visible before it, and it is ordered before his load
     *                                   of MailboxHeader::armed
     *  published(t) -> free(t + count)  by the owner, store-release, when it has used the content
     *  reserved(t)  -> free(t + count)  by the owner, when sender s is dead (ProcessWatch)
     *
     *  The owner loads with acquire. */
    std::atomic<uint64_t> state;
    uint8_t kind;  // CellKind
    uint8_t am_id;
    uint16_t unused;
    uint32_t length;  // bytes of payload, inline or in the slot
    unsigned char payload[kInlineBytes];
};
static_assert(sizeof(Cell) == Cell::kBytes, "a cell is two cache lines");

/** How the owner finds the mailbox of a sender, to answer it.
 *
 *  `owner` is 0 when free; a sender claims a record by compare-and-swap 0 -> pid << 1, writes
 *  `address`, and stores pid << 1 | 1 (release). The owner reads `address` after an acquire load that
 *  shows the low bit. Only the owner stores 0 (release): after the sender's CellKind::close, or when
 *  the sender is dead and the mailbox has been empty since, so that no message is taken for one of
 *  the record's next holder. A sender that dies while it claims leaves the record used until the
 *  owner closes. */
struct alignas(64) SenderRecord {
    std::atomic<uint64_t> owner;
    MailboxAddress address;
};

constexpr uint32_t kMaxSenders = 1024;

struct MailboxHeader {
    // Written once by the owner before anybody can attach (its address is not known before), constant.
    uint64_t magic;
    uint32_t protocol_version;
    uint32_t cell_count;
    uint64_t slot_bytes;
    Cookie cookie;

    /** A ticket that is likely to be free: written by every sender after a reservation, read by
     *  senders, relaxed. Only a hint: it may lag or jump back, cells decide. */
    alignas(64) std::atomic<uint64_t> ticket_hint;

    /** 1 when the owner sleeps and wants a byte in its wake pipe. The owner stores 1 (sequentially
     *  consistent), then looks at the queue once more; a sender that has published loads it and, if
     *  1, exchanges it for 0 and writes the byte. One of the two sees the other. If a sender dies
     *  between the exchange and the write the owner sleeps on until the next message. */
    alignas(64) std::atomic<uint32_t> armed;
};

/** A cell that the sender has reserved and fills. */
struct ReservedCell {
    Cell *cell = nullptr;
    unsigned char *slot = nullptr;
    uint64_t ticket = 0;
};

/** A message as the owner sees it: its own copies of the cell's words, checked. Payload pointers stay
 *  valid until release(). */
struct ReceivedCell {
    CellKind kind;
    uint8_t am_id;
    uint16_t sender;  // index of a SenderRecord, < kMaxSenders
    uint32_t length;  // <= kInlineBytes for an inline payload, <= slot_bytes for one in the slot
    unsigned char *payload;
    unsigned char *slot;
};

/** Sizes and places in a mailbox segment. */
struct MailboxGeometry {
    uint32_t cell_count;  // a power of two
    uint64_t slot_bytes;  // a multiple of 64

    /** Whether a mailbox may have these sizes. */
    bool possible() const;
    size_t segment_bytes() const;
    Cell *cell(unsigned char *base, uint64_t ticket) const;
    unsigned char *slot(unsigned char *base, uint64_t ticket) const;
};

/** The owner's side. One thread at a time. */
class MailboxReceiver {
public:
    /** Empty, logged, when the sizes are impossible or there is no memory or no descriptor left. */
    static std::optional<MailboxReceiver> create(uint32_t cell_count, uint64_t slot_bytes);

    MailboxAddress address() const;
    size_t slot_bytes() const { return geometry_.slot_bytes; }

    /** The oldest message, if there is one. A message that breaks the protocol is dropped here, with
     *  a line in the log once. */
    bool receive(ReceivedCell *message);
    /** Gives the cell of the last message back to the senders. */
    void release();
    /** Whether receive() would find something now. */
    bool empty() const;

    /** Skips the oldest cell when it is reserved and its sender is dead, so that it will never be
     *  published; false when there is none to skip. A few system calls. */
    bool skip_dead_sender();

    /** The address that a sender wrote into its record. Empty for a record that is not in use. */
    std::optional<MailboxAddress> sender_address(uint16_t sender) const;
    void free_sender(uint16_t sender);
    /** Looks at the next record in use, a few system calls; its index when its process is dead and has no
     *  message left here, so that the caller may free it. */
    std::optional<uint16_t> find_dead_sender();

    /** Readable when a sender found the mailbox armed. */
    int event_fd() const { return wake_read_.get(); }
    /** Empties the pipe and asks for a byte at the next message. False when there is one already. */
    bool arm();

private:
    MailboxReceiver(Segment segment, MailboxGeometry geometry, UniqueFd read, UniqueFd write);
    MailboxHeader *header() const { return reinterpret_cast<MailboxHeader *>(segment_.data()); }
    SenderRecord *sender_records() const;
    Cell *head_cell() const { return geometry_.cell(segment_.data(), head_); }
    bool unpublished(uint64_t state) const;
    uint64_t next_free_state() const;
    void advance();

    Segment segment_;
    MailboxGeometry geometry_;
    UniqueFd wake_read_;
    UniqueFd wake_write_;
    uint64_t head_ = 0;  // the ticket that is received next
    uint16_t next_watched_ = 0;  // the record that find_dead_sender looks at next
};

/** A sender's side. One thread at a time. */
class MailboxSender {
public:
    /** Attaches to the mailbox at `peer` and leaves `self` there for answers. Empty, with the reason
     *  in `*why` (static text), when the peer cannot be reached. */
    static std::optional<MailboxSender> attach(const MailboxAddress &peer,
                                               const MailboxAddress &self, const char **why);
    size_t slot_bytes() const { return geometry_.slot_bytes; }

    /** False when the mailbox is full (or its words make no sense). A cell that was reserved must be
     *  published, without waiting for anything in between: it holds up everybody behind it. */
    bool reserve(ReservedCell *reserved);
    void publish(const ReservedCell &reserved, CellKind kind, uint8_t am_id, uint32_t length);
    /** Whether reserve() would succeed now. */
    bool has_room() const;

private:
    MailboxSender(Segment segment, MailboxGeometry geometry, uint16_t sender, UniqueFd wake);
    MailboxHeader *header() const { return reinterpret_cast<MailboxHeader *>(segment_.data()); }
    bool find_free(uint64_t *ticket, uint64_t *state) const;
    void wake_owner();

    Segment segment_;
    MailboxGeometry geometry_;
    uint16_t sender_;
    UniqueFd wake_;
    uint64_t next_ticket_ = 0;  // no ticket below it is tried: keeps this sender's messages in order
};

}  // namespace gpushm
