// SPDX-License-Identifier: BSD-3-Clause
// The memory of a mailbox: a bounded queue of fixed cells in one segment, which many processes
// write (senders) and one reads (the owner).
//
// Layout of the segment (all offsets follow from the two sizes in the header):
//
//   MailboxHeader | SharedTransfer[kSharedTransfers] | SenderRecord[kMaxSenders] |
//   DirectWrites[kMaxSenders] | RegistrationList | OfferedMessage[kOfferedMessages] |
//   Cell[cell_count] | slot[slot_count], each kSlotOffset behind a multiple of 64
//   (mailbox_geometry.hpp)
//
// A message of up to kInlineBytes lies in its cell. A cell is two cache lines; a message of up to
// 48 bytes touches only the first one. A longer message lies in a slot.
//
// Messages are numbered by tickets 0, 1, 2, ...; ticket t uses cell t modulo cell_count, and slot t
// modulo slot_count if it needs one. There may be fewer slots than cells: a message that needs a
// slot has its ticket only when the owner has passed the last one of the same slot.
//
//   sender                                              owner
//   1  reserving = t + 1
//   2  tail: t -> t + 1 by compare-and-swap: now the
//      ticket t belongs to this sender
//   3  fills cell and slot
//   4  Cell::state = t + 1  (release)  -------------->  polls the state of cell `head` (acquire)
//   5  reserving = 0, except for CellKind::close        uses the message
//   6  wakes the owner if step 2 saw the armed bit      head = t + 1  (release)
//
// Each shared word has a cache line of its own, and the owner never writes to a cell. So the line
// of a cell moves to the sender and back once per message, `tail` and `reserving` stay with a
// single sender, and `head` moves once per round of the queue.
//
// Trust: a process that can write here runs as the same user, but may be broken. The owner copies
// every word once, checks the copy, and at worst drops a message. It never follows a pointer, an
// index or a length from here unchecked. The sizes in the header never change: both sides check
// them once, at attach, and use their own copies.
#pragma once

#include "core/base/cache_lines.hpp"
#include "core/base/process.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Changes with every change of what processes share; two processes talk only if it is equal. */
constexpr uint32_t kProtocolVersion = 22;

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
    am_inline = 1,        // active message, in the cell
    am_slot = 2,          // active message, in the slot
    am_ring = 3,          // active message, in the sender's staging ring: RingSpan in the cell
    ring_offer = 4,       // the sender made a staging ring: RingOffer in the cell
    ring_answer = 5,      // the answer to it: RingAnswer in the cell
    chunk_slot = 6,       // part of a transfer: TransferChunk in the cell, data in the slot
    chunk_ring = 7,       // part of a transfer: TransferChunk in the cell, data in the staging ring
    get_request = 8,      // GetRequest in the cell
    transfer_done = 9,    // TransferDone in the cell
    close = 10,           // the sender has closed its own mailbox and sends nothing more
    map_request = 11,     // MapRequest in the cell
    map_answer = 12,      // MapAnswer in the cell
    unmap_notice = 13,    // UnmapNotice in the cell
    help_request = 14,    // HelpRequest in the cell
    map_offer = 15,       // MapOffer in the cell
    gpu_ring_offer = 16,  // the sender made a ring in GPU memory: GpuRingOffer in the cell
    gpu_ring_answer = 17,  // the answer to it: GpuRingAnswer in the cell
    put_blocks = 18,       // BlockMessage in the cell, blocks and their data in the slot
    get_blocks = 19,       // BlockMessage in the cell, blocks in the slot
    block_data = 20,       // the answer to it: BlockData in the cell, data in the slot
};

/** Whether the payload lies in the slot that belongs to the cell. */
constexpr bool carries_slot(CellKind kind) {
    return kind == CellKind::am_slot || kind == CellKind::chunk_slot ||
           kind >= CellKind::put_blocks;
}

constexpr bool known_kind(CellKind kind) {
    return kind >= CellKind::am_inline && kind <= CellKind::block_data;
}

/** What a cell says of its message. One word, so that the owner uses exactly what it has checked.
 * Without the alignment clang calls libatomic. */
struct alignas(uint64_t) CellLabel {
    CellKind kind;
    uint8_t am_id;
    uint16_t sender;  // index of its SenderRecord
    uint32_t length;  // bytes of payload, inline or in the slot
};

/** One cell. Until the ticket is published, the slot and all words but `state` belong to the sender
 * that reserved the ticket; then to the owner, until MailboxHeader::head passes the ticket. */
struct alignas(128) Cell {
    static constexpr size_t kBytes = 128;
    static constexpr size_t kInlineBytes = 112;

    /** t + 1 when ticket t is published. Only the sender that reserved t writes it (store-release,
     * after everything else of the message); only the owner reads it (acquire). At ticket h the
     * owner takes any value other than h + 1, such as one of an earlier round, for "not published".
     * For a sender that dies before this store, see SenderRecord::reserving. */
    std::atomic<uint64_t> state;
    /** Relaxed on both sides: `state` orders it. */
    std::atomic<CellLabel> label;
    unsigned char payload[kInlineBytes];
};
static_assert(sizeof(Cell) == Cell::kBytes, "a cell is two cache lines");
static_assert(std::atomic<CellLabel>::is_always_lock_free, "processes share it");

/** Bytes of an inline payload that lie in the first line of the cell. */
constexpr size_t kInFirstLine = kLine - offsetof(Cell, payload);

/** How the owner finds the mailbox of a sender, to answer it. */
struct alignas(128) SenderRecord {
    /** 0 when the record is free. A sender claims it by compare-and-swap 0 -> pid << 1, writes
     * `address`, and stores pid << 1 | 1 (release). The owner reads `address` after an acquire load
     * that shows the low bit. Only the owner stores 0 (release): after the sender's
     * CellKind::close, or when the sender is dead and every ticket reserved by then was received or
     * skipped, so that no message is attributed to the next holder of the record.
     *
     * A sender that ends and finds no room for a CellKind::close changes pid << 1 | 1 to kNobody by
     * compare-and-swap (release); this is its last access to the mailbox. The address stays, for
     * the messages that wait. No process has the PID 0, so the owner takes the sender for dead; it
     * has read kNobody (acquire), so it sees all tickets that the sender had reserved. A sender
     * that dies while it claims a record is found like every dead sender. */
    std::atomic<uint64_t> owner;
    static constexpr uint64_t kNobody = 1;

    MailboxAddress address;

    /** 1 when the owner has given up its connection to the holder and does not answer it any more:
     * the owner writes it (release), the holder reads it (acquire) while it waits for anything. A
     * new holder stores 0 before the low bit of `owner`. If the owner dies or ends, the holder sees
     * that by other means. */
    std::atomic<uint32_t> given_up;

    /** h + 1 while the sender may be about to reserve ticket h, or has reserved and not published
     * it. Else 0, the ticket of an attempt that failed, or the ticket of the CellKind::close. Only
     * the record's holder writes it: h + 1 (relaxed) before each compare-and-swap of
     * MailboxHeader::tail, which releases it; 0 (release) after it has published, and when it gives
     * up. Thus a sender holds one reservation at a time. After CellKind::close the record may have
     * a new holder, whose value must not be overwritten, so the sender leaves the ticket there;
     * nobody waits for it any more. A new holder stores 0 before the low bit of `owner`.
     *
     * The owner reads it (acquire) when it waits at ticket h, which tail shows as reserved and the
     * cell as unpublished, to learn whether anybody is left who may publish h. The owner skips h
     * when no record of a living process shows h + 1 and the cell, read once more afterwards, is
     * still unpublished. No message is lost by that: the sender S of h stored h + 1 before the
     * compare-and-swap that made tail > h. The owner's acquire load of tail saw that
     * compare-and-swap or a later read-modify-write (one release sequence), so it reads h + 1 or a
     * later value of S. S writes a later value, and its record gets another holder, only after S
     * has published h: an owner that reads such a value sees h published when it reads the cell
     * again. This also holds when S publishes and dies before the owner asks whether S lives. And
     * every death is noticed: another sender that shows h + 1 has lost the compare-and-swap or will
     * lose it, and then writes another ticket or 0; the owner waits until then. */
    alignas(64) std::atomic<uint64_t> reserving;

    static pid_t pid_of(uint64_t owner) { return static_cast<pid_t>(owner >> 1); }
};
static_assert(sizeof(SenderRecord) == 128, "a line for the owner, a line for the holder");

constexpr uint32_t kMaxSenders = 1024;

struct MailboxHeader {
    // Constant: the owner writes them once, before any peer knows the mailbox's address.
    uint64_t magic;
    uint32_t protocol_version;
    uint32_t cell_count;
    uint64_t slot_bytes;
    Cookie cookie;
    static constexpr uint64_t kMagic = 0x6d68737570670001ull;  // "gpushm", layout 1

    /** Next ticket to be reserved << 1 | armed. Senders add a ticket by compare-and-swap (acq_rel)
     * and keep the armed bit; tail - head <= cell_count.
     *
     * Armed: the owner sleeps and wants to be woken (wake_socket.hpp). The owner sets the bit by
     * compare-and-swap (acq_rel) from exactly head << 1, that is when nothing is reserved, and
     * sleeps only then. A sender that reserves later sees the bit in its own compare-and-swap,
     * because all modifications of one word have one order; so sending needs no fence. A sender
     * that saw the bit clears it (acq_rel) after it has published, and wakes the owner if it was
     * still set. If the sender dies before it clears the bit, the next sender sees and clears it;
     * if it dies between clearing and waking, the owner sleeps until something else wakes it.
     *
     * A sender checks that the ticket did not go back and is at most cell_count beyond head;
     * otherwise it takes the mailbox for full. The owner receives by the cells alone. */
    alignas(128) std::atomic<uint64_t> tail;
    static constexpr uint64_t kArmed = 1;
    static uint64_t ticket_of(uint64_t tail) { return tail >> 1; }

    /** Tickets below it are received or skipped; their cells may be written. Only the owner writes
     * it (release, after the last use of the cell). Senders read it (acquire), keep a copy, and
     * read it again when the mailbox is full by that copy. A value that went back shows a fuller
     * mailbox; a value beyond tail counts as full. If the owner dies the mailbox fills up. */
    alignas(128) std::atomic<uint64_t> head;

    /** Tickets below it are reserved only while less than slot_count messages wait, so that
     * messages without a slot cannot keep the slots out of reach for ever. A sender that is refused
     * a slot moves it ahead (relaxed), at each attempt; it ends by itself, when the tickets get
     * there. A sender reads it (relaxed) after `head`. A store that is lost, or a sender that dies
     * or gives its message up, costs time only; a value without sense makes the mailbox shorter. */
    alignas(128) std::atomic<uint64_t> short_until;

    /** 1 when the owner receives no more: the owner writes it once (release); senders that wait for
     * an answer read it (acquire). It stays readable where the segment is mapped. If the owner dies
     * it may stay 0: senders watch the process as well. */
    alignas(128) std::atomic<uint64_t> closed;

    /** Only records below it were ever claimed; the owner reads no others. A sender that has
     * claimed a record raises it by compare-and-swap (relaxed) before it sets the low bit of
     * SenderRecord::owner. Any thread of the owner reads it (relaxed) behind a fence (seq_cst),
     * which is ordered with the sender's fence in DirectWrites. A value that makes no sense counts
     * as kMaxSenders. A sender that dies before it raises it has written nothing. */
    alignas(128) std::atomic<uint32_t> senders;
};

}  // namespace gpushm
