// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/mailbox_layout.hpp"

#include "core/base/log.hpp"

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

constexpr uint64_t kMagic = 0x6d68737570670001ull;  // "gpushm", layout 1

constexpr uint64_t kArmed = MailboxHeader::kArmed;

constexpr uint64_t kNobody = 1;  // SenderRecord::owner

uint64_t tail_ticket(uint64_t tail) {
    return tail >> 1;
}

SharedTransfer &transfer_of(const Segment &segment, uint32_t index) {
    return reinterpret_cast<SharedTransfer *>(segment.data() +
                                              MailboxGeometry::kTransfersOffset)[index];
}

pid_t record_pid(uint64_t owner) {
    return static_cast<pid_t>(owner >> 1);
}

void raise_senders(const Segment &segment, uint32_t count) {
    std::atomic<uint32_t> &senders = reinterpret_cast<MailboxHeader *>(segment.data())->senders;
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

/** The messages of each mailbox of this process have numbers of their own; to receive so many takes
 * months. */
uint64_t next_first_number() {
    constexpr uint64_t kNumbers = uint64_t{1} << 48;
    static std::atomic<uint64_t> mailboxes{0};
    return (mailboxes.fetch_add(1, std::memory_order_relaxed) + 1) * kNumbers;
}

/** What is longer is not fetched before it is written. From some 2 KiB on the GNU C library copies
 * by "rep movsb" (x86_rep_movsb_threshold, sysdeps/x86/dl-cacheinfo.h), which on AMD is slow into
 * lines that were fetched: 4 KiB took .29 us from process to process instead of .21, while 2 KiB
 * take .16 instead of .18 (EPYC 9004). On Intel it is quicker into these: 4 KiB .64 us instead of
 * .92, 8 KiB 1.04 instead of 1.45, 16 KiB 2.05 instead of 2.7 (Xeon of 2024). */
size_t most_fetched_for_write() {
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd")) {
        return 2112;
    }
#endif
    return SIZE_MAX;
}

}  // namespace

// ---------------------------------------------------------------- geometry

bool MailboxGeometry::possible() const {
    return cell_count != 0 && (cell_count & (cell_count - 1)) == 0 && cell_count <= (1u << 20) &&
           slot_bytes % 64 == 0 && slot_bytes <= (1u << 26);
}

// ---------------------------------------------------------------- receiver

MailboxReceiver::MailboxReceiver(Segment segment, MailboxGeometry geometry, const Cookie &cookie,
                                 WakeSocket wake_socket)
    : first_number_(next_first_number()),
      segment_(std::move(segment)),
      geometry_(geometry),
      cookie_(cookie),
      wake_socket_(std::move(wake_socket)),
      head_cell_(geometry_.cell(segment_.data(), 0)) {}

std::optional<MailboxReceiver> MailboxReceiver::create(uint32_t cell_count, uint64_t slot_bytes) {
    const MailboxGeometry geometry = {cell_count, slot_bytes};
    if (!geometry.possible()) {
        GPUSHM_LOG(warn,
                   "a mailbox of %u cells with %llu bytes each cannot be: take a power of two "
                   "up to 1048576, and a multiple of 64 up to 67108864",
                   cell_count, static_cast<unsigned long long>(slot_bytes));
        return std::nullopt;
    }
    const Cookie cookie = Cookie::random();
    std::optional<WakeSocket> wake_socket = WakeSocket::create(cookie);
    if (!wake_socket) {
        return std::nullopt;
    }
    std::optional<Segment> segment = Segment::create("gpushm-mailbox", geometry.segment_bytes());
    if (!segment) {
        return std::nullopt;
    }
    auto *header = reinterpret_cast<MailboxHeader *>(segment->data());
    header->magic = kMagic;
    header->protocol_version = kProtocolVersion;
    header->cell_count = cell_count;
    header->slot_bytes = slot_bytes;
    header->cookie = cookie;
    // Zeros are right for everything else: nothing is reserved, published or received.
    return MailboxReceiver(std::move(*segment), geometry, cookie, std::move(*wake_socket));
}

SenderRecord *MailboxReceiver::sender_records() const {
    return MailboxGeometry::sender_records(segment_.data());
}

MailboxAddress MailboxReceiver::address() const {
    MailboxAddress address;
    address.cookie = cookie_;
    address.pid = getpid();
    address.segment_fd = segment_.fd();
    return address;
}

MessagePayload MailboxReceiver::payload_at(const void *source, size_t length) const {
    const auto begin = reinterpret_cast<uintptr_t>(geometry_.slot(segment_.data(), head_));
    const auto from = reinterpret_cast<uintptr_t>(source);
    if (from < begin || from - begin > geometry_.slot_bytes ||
        length > geometry_.slot_bytes - (from - begin)) {
        return {};
    }
    return {message_number(head_), source, length};
}

MessagePayload MailboxReceiver::payload_behind(const MessagePayload &payload) const {
    const uint64_t ticket = head_ + 1;
    const Cell *const cell = geometry_.cell(segment_.data(), ticket);
    if (payload.message == 0 || cell->state.load(std::memory_order_acquire) != ticket + 1) {
        return {};
    }
    const CellLabel label = cell->label.load(std::memory_order_relaxed);
    const auto offset = static_cast<size_t>(static_cast<const unsigned char *>(payload.begin) -
                                            geometry_.slot(segment_.data(), head_));
    const bool is_rest =
        offset + payload.length == head_cell_->label.load(std::memory_order_relaxed).length;
    if (!is_rest || label.kind != CellKind::am_slot || label.length > geometry_.slot_bytes ||
        label.length <= offset) {
        return {};
    }
    return {message_number(ticket), geometry_.slot(segment_.data(), ticket) + offset,
            label.length - offset};
}

void MailboxReceiver::drop_broken(const ReceivedCell &message) {
    GPUSHM_LOG_ONCE(
        error,
        "a peer wrote a broken message (kind %u, %u bytes, sender %u) into our mailbox: it is "
        "dropped; look for memory corruption in the job's processes",
        static_cast<unsigned>(message.kind), message.length, message.sender);
    release();
}

/** Tickets that senders have reserved and the owner has not passed; more than cell_count when tail
 * makes no sense. */
uint64_t MailboxReceiver::unreceived_tickets() const {
    return tail_ticket(header()->tail.load(std::memory_order_acquire)) - head_;
}

uint64_t MailboxReceiver::reserved_tickets() const {
    const uint64_t count = unreceived_tickets();
    return count <= geometry_.cell_count ? head_ + count : head_;  // nonsense is not waited for
}

bool MailboxReceiver::skip_dead_sender() {
    const uint64_t reserved = unreceived_tickets();
    if (reserved == 0 || reserved > geometry_.cell_count || !empty()) {
        return false;
    }
    for (uint32_t i = 0; i < kMaxSenders; ++i) {
        const SenderRecord &record = sender_records()[i];
        if (record.reserving.load(std::memory_order_acquire) == head_ + 1) {
            const uint64_t owner = record.owner.load(std::memory_order_acquire);
            if (owner != 0 && ProcessWatch(record_pid(owner)).alive()) {
                return false;
            }
        }
    }
    // It may have published before it died: then the message counts.
    if (!empty()) {
        return false;
    }
    release();
    return true;
}

SharedTransfer &MailboxReceiver::shared_transfer(uint32_t index) const {
    return transfer_of(segment_, index);
}

void MailboxReceiver::close() {
    header()->closed.store(1, std::memory_order_release);
}

std::optional<MailboxAddress> MailboxReceiver::sender_address(uint16_t sender) const {
    const SenderRecord &record = sender_records()[sender];
    if ((record.owner.load(std::memory_order_acquire) & 1) == 0) {
        return std::nullopt;
    }
    return record.address;
}

void MailboxReceiver::free_sender(uint16_t sender) {
    sender_records()[sender].owner.store(0, std::memory_order_release);
}

void MailboxReceiver::give_up(uint16_t sender) {
    sender_records()[sender].given_up.store(1, std::memory_order_release);
}

bool MailboxReceiver::has_sender(const Cookie &cookie) const {
    for (uint16_t i = 0; i < kMaxSenders; ++i) {
        const std::optional<MailboxAddress> address = sender_address(i);
        if (address && address->cookie == cookie) {
            return true;
        }
    }
    return false;
}

std::optional<MailboxReceiver::Writer> MailboxReceiver::find_writer(uint64_t registration,
                                                                    uint32_t first) const {
    const uint32_t senders =
        std::min(header()->senders.load(std::memory_order_relaxed), kMaxSenders);
    for (uint32_t i = first; i < senders; ++i) {
        if (!writes(static_cast<uint16_t>(i), registration)) {
            continue;
        }
        const pid_t pid = record_pid(sender_records()[i].owner.load(std::memory_order_acquire));
        if (pid != 0 && ProcessWatch(pid).alive()) {
            return Writer{static_cast<uint16_t>(i), pid};
        }
    }
    return std::nullopt;
}

std::optional<uint16_t> MailboxReceiver::find_dead_sender() {
    for (uint32_t i = 0; i < kMaxSenders; ++i) {
        const uint16_t sender = next_watched_;
        next_watched_ = static_cast<uint16_t>((next_watched_ + 1) % kMaxSenders);
        const uint64_t owner = sender_records()[sender].owner.load(std::memory_order_acquire);
        if (owner != 0) {
            // In this order: who is dead, or nobody, reserves nothing after the mailbox was seen
            // idle.
            const bool dead = !ProcessWatch(record_pid(owner)).alive();
            return dead && unreceived_tickets() == 0 ? std::optional<uint16_t>(sender)
                                                     : std::nullopt;
        }
    }
    return std::nullopt;
}

bool MailboxReceiver::arm() {
    wake_socket_.drain();
    const uint64_t idle = head_ << 1;
    uint64_t tail = idle;
    return header()->tail.compare_exchange_strong(tail, idle | kArmed, std::memory_order_acq_rel,
                                                  std::memory_order_acquire) ||
           tail == (idle | kArmed);
}

// ---------------------------------------------------------------- sender

SharedTransfer &MailboxSender::shared_transfer(uint32_t index) const {
    return transfer_of(segment_, index);
}

MailboxSender::MailboxSender(Segment segment, MailboxGeometry geometry, const Cookie &owner,
                             uint16_t sender)
    : segment_(std::move(segment)),
      geometry_(geometry),
      owner_(owner),
      sender_(sender),
      most_fetched_(most_fetched_for_write()) {
    const uint64_t head = header()->head.load(std::memory_order_acquire);
    if (head <= tail_ticket(header()->tail.load(std::memory_order_relaxed))) {
        head_ = head;
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
    const auto *header = reinterpret_cast<const MailboxHeader *>(segment->data());
    const MailboxGeometry geometry = {header->cell_count, header->slot_bytes};
    if (header->magic != kMagic || header->protocol_version != kProtocolVersion ||
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

/** Whether the ticket of `*tail` may be reserved. When it may not by what the caller knows, both
 * words are read again. False: full, or they make no sense. */
inline bool MailboxSender::find_room(uint64_t *tail, uint64_t *head) const {
    const uint64_t ticket = tail_ticket(*tail);
    return (ticket >= next_ticket_ && ticket - *head < geometry_.cell_count) ||
           read_again(tail, head);
}

bool MailboxSender::read_again(uint64_t *tail, uint64_t *head) const {
    // In this order: tail is read at least as new as when the owner passed `new_head`.
    const uint64_t new_head = header()->head.load(std::memory_order_acquire);
    *tail = header()->tail.load(std::memory_order_relaxed);
    const uint64_t ticket = tail_ticket(*tail);
    if (new_head > ticket || ticket < next_ticket_) {
        return false;
    }
    *head = new_head;
    return ticket - new_head < geometry_.cell_count;
}

/** `tail`: what it was seen to be, or a guess. A round is lost to another sender's success; after
 * more than these the words make no sense, and the mailbox counts as full. */
bool MailboxSender::reserve_again(uint64_t tail, ReservedCell *reserved) {
    for (uint64_t rounds = 2 * uint64_t{geometry_.cell_count} + 16;
         rounds != 0 && find_room(&tail, &head_); --rounds) {
        if (try_reserve(&tail, reserved)) {
            return true;
        }
    }
    record()->reserving.store(0, std::memory_order_release);
    return false;
}

bool MailboxSender::makes_sense() const {
    const uint64_t head = header()->head.load(std::memory_order_acquire);
    const uint64_t ticket = tail_ticket(header()->tail.load(std::memory_order_acquire));
    if (header()->head.load(std::memory_order_acquire) != head) {
        return true;  // they were not read at one time
    }
    return head <= ticket && ticket - head <= geometry_.cell_count && ticket >= next_ticket_;
}

bool MailboxSender::has_room() const {
    uint64_t tail = header()->tail.load(std::memory_order_relaxed);
    uint64_t head = head_;
    return find_room(&tail, &head);
}

void MailboxSender::abandon() {
    uint64_t own = static_cast<uint64_t>(getpid()) << 1 | 1;
    record()->owner.compare_exchange_strong(own, kNobody, std::memory_order_release,
                                            std::memory_order_relaxed);
}

/** Fetches what a message like the last one will write behind the first line of its cell, while
 * nobody waits for it. Not that line, whose state the owner polls; nothing that the owner may still
 * read or another sender may be writing. */
void MailboxSender::prefetch_like(uint64_t ticket, CellKind kind, size_t length) const {
    if (!is_free(ticket)) {
        return;
    }
    if (!carries_slot(kind)) {
        prefetch_for_write(geometry_.cell(segment_.data(), ticket)->payload + kInFirstLine);
    } else if (length <= most_fetched_) {
        prefetch_for_write(geometry_.slot(segment_.data(), ticket), length);
    }
}

void MailboxSender::expect_two_messages() const {
    constexpr size_t kSlotBytes = 192;  // UCP announces memory in 100 to 200
    const uint64_t second = next_ticket_ + 1;
    if (alone_ && is_free(second)) {
        prefetch_for_write(geometry_.cell(segment_.data(), next_ticket_));
        prefetch_for_write(geometry_.cell(segment_.data(), second));
        prefetch_for_write(geometry_.slot(segment_.data(), second), kSlotBytes);
    }
}

void MailboxSender::wake_owner() {
    if ((header()->tail.fetch_and(~kArmed, std::memory_order_acq_rel) & kArmed) != 0) {
        wake(owner_);
    }
}

}  // namespace gpushm
