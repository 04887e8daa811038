// SPDX-License-Identifier: BSD-3-Clause
#include "core/mailbox.hpp"

#include "core/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpushm {
namespace {

constexpr uint64_t kMagic = 0x6d68737570670001ull;  // "gpushm", layout 1

enum class Phase : uint64_t { free = 0, reserved = 1, published = 2 };

constexpr unsigned kTicketShift = 18;
constexpr unsigned kSenderShift = 2;

uint64_t make_state(uint64_t ticket, uint16_t sender, Phase phase) {
    return ticket << kTicketShift | static_cast<uint64_t>(sender) << kSenderShift |
           static_cast<uint64_t>(phase);
}
/** Tickets are compared modulo 2^46. */
uint64_t state_ticket(uint64_t state) { return state >> kTicketShift; }
uint16_t state_sender(uint64_t state) { return static_cast<uint16_t>(state >> kSenderShift); }
Phase state_phase(uint64_t state) { return static_cast<Phase>(state & 3); }

constexpr size_t kRecordsOffset = (sizeof(MailboxHeader) + 63) / 64 * 64;
constexpr size_t kCellsOffset = kRecordsOffset + kMaxSenders * sizeof(SenderRecord);

SenderRecord *records_of(const Segment &segment) {
    return reinterpret_cast<SenderRecord *>(segment.data() + kRecordsOffset);
}

pid_t record_pid(uint64_t owner) { return static_cast<pid_t>(owner >> 1); }

bool carries_slot(CellKind kind) {
    return kind == CellKind::am_slot || kind == CellKind::chunk_slot;
}

bool known_kind(uint8_t kind) {
    return kind >= static_cast<uint8_t>(CellKind::am_inline) &&
           kind <= static_cast<uint8_t>(CellKind::close);
}

std::optional<uint16_t> register_sender(const Segment &segment, const MailboxAddress &self) {
    SenderRecord *records = records_of(segment);
    const uint64_t claimed = static_cast<uint64_t>(self.pid) << 1;
    for (uint32_t i = 0; i < kMaxSenders; ++i) {
        uint64_t owner = 0;
        if (records[i].owner.compare_exchange_strong(owner, claimed, std::memory_order_acq_rel)) {
            records[i].address = self;
            records[i].owner.store(claimed | 1, std::memory_order_release);
            return static_cast<uint16_t>(i);
        }
    }
    return std::nullopt;
}

UniqueFd open_wake_pipe(const MailboxAddress &peer) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", peer.pid, peer.wake_fd);
    // Both directions, although nothing is read: a pipe without a reader, which a dead owner leaves
    // behind, would raise SIGPIPE at the next write (pipe(7)).
    UniqueFd fd(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    struct stat status = {};
    // A number that is wrong must not lead into a file of the user.
    return fstat(fd.get(), &status) == 0 && S_ISFIFO(status.st_mode) ? std::move(fd) : UniqueFd();
}

}  // namespace

// ---------------------------------------------------------------- geometry

bool MailboxGeometry::possible() const {
    return cell_count != 0 && (cell_count & (cell_count - 1)) == 0 && cell_count <= (1u << 20) &&
           slot_bytes % 64 == 0 && slot_bytes <= (1u << 26);
}

size_t MailboxGeometry::segment_bytes() const {
    return kCellsOffset + cell_count * (sizeof(Cell) + slot_bytes);
}

Cell *MailboxGeometry::cell(unsigned char *base, uint64_t ticket) const {
    return reinterpret_cast<Cell *>(base + kCellsOffset) + (ticket & (cell_count - 1));
}

unsigned char *MailboxGeometry::slot(unsigned char *base, uint64_t ticket) const {
    return base + kCellsOffset + cell_count * sizeof(Cell) +
           (ticket & (cell_count - 1)) * slot_bytes;
}

// ---------------------------------------------------------------- receiver

MailboxReceiver::MailboxReceiver(Segment segment, MailboxGeometry geometry, UniqueFd read,
                                 UniqueFd write)
    : segment_(std::move(segment)), geometry_(geometry), wake_read_(std::move(read)),
      wake_write_(std::move(write)) {}

std::optional<MailboxReceiver> MailboxReceiver::create(uint32_t cell_count, uint64_t slot_bytes) {
    const MailboxGeometry geometry = {cell_count, slot_bytes};
    if (!geometry.possible()) {
        GPUSHM_LOG(warn, "a mailbox of %u cells with %llu bytes each cannot be: take a power of two "
                   "up to 1048576, and a multiple of 64 up to 67108864", cell_count,
                   static_cast<unsigned long long>(slot_bytes));
        return std::nullopt;
    }
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC) != 0) {
        GPUSHM_LOG(warn, "cannot create a pipe (%s): raise the limit of open files (ulimit -n)",
                   strerror(errno));
        return std::nullopt;
    }
    UniqueFd read(pipe_fds[0]);
    UniqueFd write(pipe_fds[1]);
    std::optional<Segment> segment = Segment::create("gpushm-mailbox", geometry.segment_bytes());
    if (!segment) {
        return std::nullopt;
    }
    auto *header = reinterpret_cast<MailboxHeader *>(segment->data());
    header->magic = kMagic;
    header->protocol_version = kProtocolVersion;
    header->cell_count = cell_count;
    header->slot_bytes = slot_bytes;
    header->cookie = Cookie::random();
    for (uint64_t ticket = 0; ticket < cell_count; ++ticket) {
        geometry.cell(segment->data(), ticket)
            ->state.store(make_state(ticket, 0, Phase::free), std::memory_order_relaxed);
    }
    return MailboxReceiver(std::move(*segment), geometry, std::move(read), std::move(write));
}

SenderRecord *MailboxReceiver::sender_records() const { return records_of(segment_); }

MailboxAddress MailboxReceiver::address() const {
    MailboxAddress address;
    address.cookie = header()->cookie;
    address.pid = getpid();
    address.segment_fd = segment_.fd();
    address.wake_fd = wake_write_.get();
    return address;
}

/** The cell of the oldest message is free or reserved: what every sender leaves it as. In any other
 *  state than that or published it is broken, and receive() must see it. */
bool MailboxReceiver::unpublished(uint64_t state) const {
    const Phase phase = state_phase(state);
    return state_ticket(state) == head_ && (phase == Phase::free || phase == Phase::reserved);
}

bool MailboxReceiver::empty() const {
    return unpublished(head_cell()->state.load(std::memory_order_seq_cst));
}

bool MailboxReceiver::receive(ReceivedCell *message) {
    for (;;) {
        Cell *cell = head_cell();
        const uint64_t state = cell->state.load(std::memory_order_acquire);
        if (unpublished(state)) {
            return false;
        }
        const uint8_t kind = cell->kind;
        message->kind = static_cast<CellKind>(kind);
        message->am_id = cell->am_id;
        message->sender = state_sender(state);
        message->length = cell->length;
        message->payload = cell->payload;
        message->slot = geometry_.slot(segment_.data(), head_);
        const size_t limit =
            carries_slot(message->kind) ? geometry_.slot_bytes : Cell::kInlineBytes;
        if (known_kind(kind) && message->length <= limit && message->sender < kMaxSenders &&
            state_phase(state) == Phase::published && state_ticket(state) == head_) {
            return true;
        }
        GPUSHM_LOG_ONCE(error, "a peer wrote a broken message (kind %u, %u bytes, sender %u) into "
                        "our mailbox: it is dropped; look for memory corruption in the job's "
                        "processes", kind, message->length, message->sender);
        advance();
    }
}

void MailboxReceiver::release() { advance(); }

uint64_t MailboxReceiver::next_free_state() const {
    return make_state(head_ + geometry_.cell_count, 0, Phase::free);
}

void MailboxReceiver::advance() {
    head_cell()->state.store(next_free_state(), std::memory_order_release);
    ++head_;
}

bool MailboxReceiver::skip_dead_sender() {
    uint64_t state = head_cell()->state.load(std::memory_order_acquire);
    if (state_phase(state) != Phase::reserved) {
        return false;
    }
    const uint16_t sender = state_sender(state);
    const uint64_t owner =
        sender < kMaxSenders ? sender_records()[sender].owner.load(std::memory_order_acquire) : 0;
    if (owner != 0 && ProcessWatch(record_pid(owner)).alive()) {
        return false;
    }
    // It may have published before it died: then the message counts.
    if (!head_cell()->state.compare_exchange_strong(state, next_free_state(),
                                                    std::memory_order_acq_rel)) {
        return false;
    }
    ++head_;
    return true;
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

std::optional<uint16_t> MailboxReceiver::find_dead_sender() {
    for (uint32_t i = 0; i < kMaxSenders; ++i) {
        const uint16_t sender = next_watched_;
        next_watched_ = static_cast<uint16_t>((next_watched_ + 1) % kMaxSenders);
        const uint64_t owner = sender_records()[sender].owner.load(std::memory_order_acquire);
        if (owner != 0) {
            // In this order: a dead process writes nothing after the mailbox was seen empty.
            const bool dead = !ProcessWatch(record_pid(owner)).alive();
            return dead && empty() ? std::optional<uint16_t>(sender) : std::nullopt;
        }
    }
    return std::nullopt;
}

bool MailboxReceiver::arm() {
    char bytes[64];
    while (read(wake_read_.get(), bytes, sizeof(bytes)) > 0) {
    }
    header()->armed.store(1, std::memory_order_seq_cst);
    return empty();
}

// ---------------------------------------------------------------- sender

MailboxSender::MailboxSender(Segment segment, MailboxGeometry geometry, uint16_t sender,
                             UniqueFd wake)
    : segment_(std::move(segment)), geometry_(geometry), sender_(sender),
      wake_(std::move(wake)) {}

std::optional<MailboxSender> MailboxSender::attach(const MailboxAddress &peer,
                                                   const MailboxAddress &self, const char **why) {
    std::optional<Segment> segment = Segment::attach(peer.pid, peer.segment_fd, kCellsOffset, why);
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
    UniqueFd wake = open_wake_pipe(peer);
    if (!wake) {
        *why = "its wake-up pipe cannot be opened: raise the limit of open files (ulimit -n)";
        return std::nullopt;
    }
    const std::optional<uint16_t> sender = register_sender(*segment, self);
    if (!sender) {
        *why = "its mailbox has no room for another sender";
        return std::nullopt;
    }
    return MailboxSender(std::move(*segment), geometry, *sender, std::move(wake));
}

/** The first free cell at or behind `*ticket`, and its state. */
bool MailboxSender::find_free(uint64_t *ticket, uint64_t *state) const {
    // Every round passes a cell that another sender has taken; more rounds than this mean that the
    // words make no sense, and the mailbox counts as full.
    for (uint32_t round = 0; round < 2 * geometry_.cell_count + 16; ++round) {
        *state = geometry_.cell(segment_.data(), *ticket)->state.load(std::memory_order_acquire);
        const uint64_t found = state_ticket(*state);
        if (found == *ticket && state_phase(*state) == Phase::free) {
            return true;
        }
        if (found < *ticket) {
            return false;  // the cell still serves the round before: the mailbox is full
        }
        *ticket = std::max(*ticket + 1, header()->ticket_hint.load(std::memory_order_relaxed));
    }
    return false;
}

bool MailboxSender::reserve(ReservedCell *reserved) {
    uint64_t ticket = next_ticket_;
    uint64_t state;
    while (find_free(&ticket, &state)) {
        Cell *cell = geometry_.cell(segment_.data(), ticket);
        if (cell->state.compare_exchange_strong(state,
                                                make_state(ticket, sender_, Phase::reserved),
                                                std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
            header()->ticket_hint.store(ticket + 1, std::memory_order_relaxed);
            next_ticket_ = ticket + 1;
            *reserved = {cell, geometry_.slot(segment_.data(), ticket), ticket};
            return true;
        }
    }
    return false;
}

bool MailboxSender::has_room() const {
    uint64_t ticket = next_ticket_;
    uint64_t state;
    return find_free(&ticket, &state);
}

void MailboxSender::publish(const ReservedCell &reserved, CellKind kind, uint8_t am_id,
                            uint32_t length) {
    Cell *cell = reserved.cell;
    cell->kind = static_cast<uint8_t>(kind);
    cell->am_id = am_id;
    cell->length = length;
    cell->state.exchange(make_state(reserved.ticket, sender_, Phase::published),
                         std::memory_order_seq_cst);
    if (header()->armed.load(std::memory_order_seq_cst) != 0) {
        wake_owner();
    }
}

void MailboxSender::wake_owner() {
    if (header()->armed.exchange(0, std::memory_order_seq_cst) != 0) {
        const char byte = 1;
        (void)!write(wake_.get(), &byte, 1);  // a full pipe wakes the owner as well
    }
}

}  // namespace gpushm
