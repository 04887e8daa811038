// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/mailbox_receiver.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/base/process.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace gpushm {
namespace {

/** The first message number of a new mailbox. Mailboxes of this process get disjoint ranges; to
 * receive as many messages as a range has takes months. */
uint64_t next_first_number() {
    constexpr uint64_t kNumbers = uint64_t{1} << 48;
    static std::atomic<uint64_t> mailboxes{0};
    return (mailboxes.fetch_add(1, std::memory_order_relaxed) + 1) * kNumbers;
}

}  // namespace

MailboxReceiver::MailboxReceiver(Segment segment, MailboxGeometry geometry, const Cookie &cookie,
                                 WakeSocket wake_socket)
    : MailboxMemory(std::move(segment), geometry),
      first_number_(next_first_number()),
      cookie_(cookie),
      wake_socket_(std::move(wake_socket)),
      head_cell_(cell_of(0)) {}

std::optional<MailboxReceiver> MailboxReceiver::create(uint32_t cell_count, uint64_t slot_bytes) {
    const MailboxGeometry geometry = {cell_count, slot_bytes};
    if (!geometry.possible()) {
        GPUSHM_LOG(warn,
                   "a mailbox of %u cells with %llu bytes each is not possible: use a power of two "
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
    MailboxHeader *header = MailboxGeometry::header(segment->data());
    header->magic = MailboxHeader::kMagic;
    header->protocol_version = kProtocolVersion;
    header->cell_count = cell_count;
    header->slot_bytes = slot_bytes;
    header->cookie = cookie;
    // Zeros are right for everything else: nothing is reserved, published or received.
    return MailboxReceiver(std::move(*segment), geometry, cookie, std::move(*wake_socket));
}

MailboxAddress MailboxReceiver::address() const {
    MailboxAddress address;
    address.cookie = cookie_;
    address.pid = getpid();
    address.segment_fd = segment_.fd();
    return address;
}

MessagePayload MailboxReceiver::payload_at(const void *source, size_t length) const {
    const auto begin = to_number(slot_of(head_));
    const auto from = to_number(source);
    if (from < begin || from - begin > geometry_.slot_bytes ||
        length > geometry_.slot_bytes - (from - begin)) {
        return {};
    }
    return {message_number(head_), source, length};
}

MessagePayload MailboxReceiver::payload_behind(const MessagePayload &payload) const {
    const uint64_t ticket = head_ + 1;
    const Cell *const cell = cell_of(ticket);
    if (payload.message == 0 || cell->state.load(std::memory_order_acquire) != ticket + 1) {
        return {};
    }
    const CellLabel label = cell->label.load(std::memory_order_relaxed);
    const auto offset =
        static_cast<size_t>(static_cast<const unsigned char *>(payload.begin) - slot_of(head_));
    const bool is_rest =
        offset + payload.length == head_cell_->label.load(std::memory_order_relaxed).length;
    if (!is_rest || label.kind != CellKind::am_slot || label.length > geometry_.slot_bytes ||
        label.length <= offset) {
        return {};
    }
    return {message_number(ticket), slot_of(ticket) + offset, label.length - offset};
}

void MailboxReceiver::drop_broken(const ReceivedCell &message) {
    GPUSHM_LOG_ONCE(
        error,
        "a peer wrote a broken message (kind %u, %u bytes, sender %u) into the mailbox of this "
        "process: the message is dropped; look for memory corruption in the job's processes",
        static_cast<unsigned>(message.kind), message.length, message.sender);
    release();
}

/** Tickets that senders have reserved and the owner has not passed; more than cell_count when tail
 * makes no sense. */
uint64_t MailboxReceiver::unreceived_tickets() const {
    return MailboxHeader::ticket_of(header()->tail.load(std::memory_order_acquire)) - head_;
}

uint64_t MailboxReceiver::reserved_tickets() const {
    const uint64_t count = unreceived_tickets();
    return count <= geometry_.cell_count ? head_ + count : head_;  // nonsense counts as nothing
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
            if (owner != 0 && ProcessWatch(SenderRecord::pid_of(owner)).alive()) {
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
        const pid_t pid =
            SenderRecord::pid_of(sender_records()[i].owner.load(std::memory_order_acquire));
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
            // In this order: a dead sender, and kNobody, reserves nothing after the mailbox was
            // seen idle.
            const bool dead = !ProcessWatch(SenderRecord::pid_of(owner)).alive();
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
    return header()->tail.compare_exchange_strong(tail, idle | MailboxHeader::kArmed,
                                                  std::memory_order_acq_rel,
                                                  std::memory_order_acquire) ||
           tail == (idle | MailboxHeader::kArmed);
}

}  // namespace gpushm
