// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/mailbox_sender.hpp"

#include "core/shm/wake_socket.hpp"

#include <unistd.h>

#include <utility>

namespace gpushm {
namespace {

void raise_senders(const Segment &segment, uint32_t count) {
    std::atomic<uint32_t> &senders = MailboxGeometry::header(segment.data())->senders;
    uint32_t seen = senders.load(std::memory_order_relaxed);
    while (seen < count && !senders.compare_exchange_weak(seen, count, std::memory_order_relaxed)) {
    }
}

std::optional<uint16_t> register_sender(const Segment &segment, const MailboxAddress &self) {
    SenderRecord *records = MailboxGeometry::sender_records(segment.data());
    const uint64_t claimed = static_cast<uint64_t>(self.pid) << 1;
    for (uint32_t i = 0; i < kMaxSenders; ++i) {
        uint64_t owner = 0;
        if (records[i].owner.compare_exchange_strong(owner, claimed, std::memory_order_acq_rel)) {
            records[i].address = self;
            records[i].reserving.store(0, std::memory_order_relaxed);
            records[i].given_up.store(0, std::memory_order_relaxed);
            MailboxGeometry::direct_writes(segment.data())[i].clear();
            raise_senders(segment, i + 1);
            records[i].owner.store(claimed | 1, std::memory_order_release);
            return static_cast<uint16_t>(i);
        }
    }
    return std::nullopt;
}

/** Longer payloads are not prefetched before they are written: doc/decisions/shm-cache-lines.md. */
size_t max_prefetch_bytes() {
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd")) {
        return 2112;
    }
#endif
    return SIZE_MAX;
}

}  // namespace

MailboxSender::MailboxSender(Segment segment, MailboxGeometry geometry, const Cookie &owner,
                             uint16_t sender)
    : MailboxMemory(std::move(segment), geometry),
      owner_(owner),
      sender_(sender),
      max_prefetch_(max_prefetch_bytes()) {
    seen_.most = geometry.cell_count;
    const uint64_t head = header()->head.load(std::memory_order_acquire);
    if (head <= MailboxHeader::ticket_of(header()->tail.load(std::memory_order_relaxed))) {
        seen_.head = head;
        next_ticket_ = head;
    }
}

std::optional<MailboxSender> MailboxSender::attach(const MailboxAddress &peer,
                                                   const MailboxAddress &self, const char **why) {
    std::optional<Segment> segment =
        Segment::attach(peer.pid, peer.segment_fd, MailboxGeometry::kCellsOffset, why);
    if (!segment) {
        return std::nullopt;
    }
    const MailboxHeader *header = MailboxGeometry::header(segment->data());
    const MailboxGeometry geometry = {header->cell_count, header->slot_bytes};
    if (header->magic != MailboxHeader::kMagic || header->protocol_version != kProtocolVersion ||
        !(header->cookie == peer.cookie)) {
        *why = "it is not the mailbox that the address names";
        return std::nullopt;
    }
    if (!geometry.possible() || geometry.segment_bytes() > segment->length()) {
        *why = "its mailbox states impossible sizes";
        return std::nullopt;
    }
    if (!can_wake()) {
        *why = "this process has too many open files to wake it: raise ulimit -n";
        return std::nullopt;
    }
    const std::optional<uint16_t> sender = register_sender(*segment, self);
    if (!sender) {
        *why = "its mailbox has no room for another sender";
        return std::nullopt;
    }
    return MailboxSender(std::move(*segment), geometry, peer.cookie, *sender);
}

/** Whether the ticket of `*tail` may be reserved. Reads both words again when the caller's values
 * say no. False: the mailbox is full, or the words make no sense. */
inline bool MailboxSender::find_room(uint64_t *tail, Seen *seen, Room room) const {
    const uint64_t ticket = MailboxHeader::ticket_of(*tail);
    return (ticket >= next_ticket_ && has_room_at(ticket, *seen, room)) ||
           read_again(tail, seen, room);
}

bool MailboxSender::read_again(uint64_t *tail, Seen *seen, Room room) const {
    // In this order, so that tail is not older than the moment when the owner passed `new_head`.
    const uint64_t new_head = header()->head.load(std::memory_order_acquire);
    *tail = header()->tail.load(std::memory_order_relaxed);
    const uint64_t ticket = MailboxHeader::ticket_of(*tail);
    if (new_head > ticket || ticket < next_ticket_) {
        return false;
    }
    const bool is_short = ticket < header()->short_until.load(std::memory_order_relaxed);
    *seen = {new_head, is_short ? geometry_.slot_count() : geometry_.cell_count};
    const bool found = has_room_at(ticket, *seen, room);
    if (!found && room == Room::slot) {
        ask_for_slots(ticket);
    }
    return found;
}

/** `ticket` was refused. Not a store for each attempt, for all senders read the word. */
void MailboxSender::ask_for_slots(uint64_t ticket) const {
    std::atomic<uint64_t> &until = header()->short_until;
    if (until.load(std::memory_order_relaxed) < ticket + geometry_.cell_count / 2) {
        until.store(ticket + geometry_.cell_count, std::memory_order_relaxed);
    }
}

/** `tail`: a value that was read, or a guess. Each lost round is a success of another sender; when
 * there are too many of them the words make no sense, and the mailbox counts as full. */
bool MailboxSender::reserve_again(uint64_t tail, ReservedCell *reserved, Room room) {
    for (uint64_t rounds = 2 * uint64_t{geometry_.cell_count} + 16;
         rounds != 0 && find_room(&tail, &seen_, room); --rounds) {
        if (try_reserve(&tail, reserved)) {
            return true;
        }
    }
    record()->reserving.store(0, std::memory_order_release);
    return false;
}

bool MailboxSender::makes_sense() const {
    const uint64_t head = header()->head.load(std::memory_order_acquire);
    const uint64_t ticket =
        MailboxHeader::ticket_of(header()->tail.load(std::memory_order_acquire));
    if (header()->head.load(std::memory_order_acquire) != head) {
        return true;  // they were not read at one time
    }
    return head <= ticket && ticket - head <= geometry_.cell_count && ticket >= next_ticket_;
}

bool MailboxSender::has_room(Room room) const {
    uint64_t tail = header()->tail.load(std::memory_order_relaxed);
    Seen seen = seen_;
    return find_room(&tail, &seen, room);
}

void MailboxSender::abandon() {
    uint64_t own = static_cast<uint64_t>(getpid()) << 1 | 1;
    record()->owner.compare_exchange_strong(own, SenderRecord::kNobody, std::memory_order_release,
                                            std::memory_order_relaxed);
}

/** Prefetches what a message like the last one will write, except the first line of its cell, which
 * the owner polls. Touches nothing that the owner may still read or another sender may write. */
void MailboxSender::prefetch_like(uint64_t ticket, CellKind kind, size_t length) const {
    if (!is_free(ticket, room_of(kind))) {
        return;
    }
    if (!carries_slot(kind)) {
        prefetch_for_write(cell_of(ticket)->payload + kInFirstLine);
    } else if (length <= max_prefetch_) {
        prefetch_for_write(slot_of(ticket), length);
    }
}

void MailboxSender::expect_two_messages() const {
    constexpr size_t kSlotBytes = 192;  // UCP's rendezvous messages have 100 to 200
    const uint64_t second = next_ticket_ + 1;
    if (alone_ && is_free(second, Room::slot)) {
        prefetch_for_write(cell_of(next_ticket_));
        prefetch_for_write(cell_of(second));
        prefetch_for_write(slot_of(second), kSlotBytes);
    }
}

void MailboxSender::wake_owner() {
    if ((header()->tail.fetch_and(~MailboxHeader::kArmed, std::memory_order_acq_rel) &
         MailboxHeader::kArmed) != 0) {
        wake(owner_);
    }
}

}  // namespace gpushm
