// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/host_read_helper.hpp"

#include "core/base/cma.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/memory/registration_table.hpp"
#include "core/memory/memory_query.hpp"
#include "core/transport/host_pieces.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace gpushm {
namespace {

// A reader that takes nothing out of its mailbox for so long does without help.
constexpr uint64_t kReaderPatienceNs = 1'000'000;

// No process id is given to another process sooner: all others are given first (Linux
// kernel/pid.c, alloc_pid(): idr_alloc_cyclic()).
constexpr uint64_t kSoonestReuseNs = 1'000'000;

/** Whether the peer may read it. */
bool is_registered(const HelpRequest &request) {
    return RegistrationTable::instance().covers(request.registration, request.address,
                                                request.length);
}

/** Whether the peer may read it, and the CPU can. */
bool is_shared_host_memory(const HelpRequest &request) {
    const MemoryKind kind = query_memory(reinterpret_cast<const void *>(request.address)).kind;
    return (kind == MemoryKind::host || kind == MemoryKind::pinned) && is_registered(request);
}

}  // namespace

/** Takes out the requests for transfers of which nothing is left to do. */
void HostReadHelper::forget_served() {
    requests_.erase(std::remove_if(requests_.begin(), requests_.end(),
                                   [this](const HelpRequest &request) {
                                       return channel_.mailbox.shared_transfer(request.shared.index)
                                           .all_claimed(request.shared.id);
                                   }),
                    requests_.end());
}

void HostReadHelper::receive_request(const HelpRequest &request) {
    const uint64_t pieces =
        request.piece_bytes == 0 ? 0 : (request.length - 1) / request.piece_bytes + 1;
    if (requests_.size() >= kSharedTransfers) {
        forget_served();  // the reader copied them alone, and uses their words for others
    }
    if (request.shared.index >= kSharedTransfers || request.length == 0 || pieces == 0 ||
        pieces > SharedTransfer::kMaxPieces || requests_.size() >= kSharedTransfers) {
        GPUSHM_LOG(error,
                   "process %d sent an invalid request for help with a copy: the request is "
                   "ignored; look for memory corruption in the job's processes",
                   channel_.peer.pid);
        return;
    }
    // Nothing is written into a process that has got the id of a dead one. To ask takes 0.5 us, so
    // this asks only when there was time for that (or the request comes from the future, by the
    // clock of another time namespace).
    if (monotonic_nanoseconds() - request.asked_at > kSoonestReuseNs && !channel_.peer_alive()) {
        return;
    }
    if (request.by_slots != 0 && !sends_slots_) {
        sends_slots_ = true;
        channel_.mailbox.populate();
    }
    requests_.push_back(request);
    channel_.activate();
}

/** Whether messages of others still find room when one more piece is there. */
bool HostReadHelper::has_room() const {
    const MailboxSender &mailbox = channel_.mailbox;
    const bool are_many =
        sent_ >= kMaxSlotPieces && !mailbox.is_received(tickets_[sent_ % kMaxSlotPieces]);
    return !are_many && mailbox.backlog() < mailbox.cell_count() / 2;
}

/** One piece into a slot of the reader's mailbox. */
HostReadHelper::Help HostReadHelper::help_by_slot(const HelpRequest &request) {
    MailboxSender &mailbox = channel_.mailbox;
    SharedTransfer &transfer = mailbox.shared_transfer(request.shared.index);
    const uint32_t id = request.shared.id;
    if (transfer.all_claimed(id)) {
        return Help::over;
    }
    ReservedCell reserved;
    if (!has_room() || !mailbox.reserve(&reserved)) {
        return Help::no_room;
    }
    HelpPiece piece = {SharedUse(), 0};  // of no use, if the reader was quicker
    uint64_t length = 0;
    if (const std::optional<uint32_t> claimed = transfer.claim_last(id)) {
        const uint64_t offset = *claimed * request.piece_bytes;
        length = length_of_piece(offset, request.piece_bytes, request.length);
        const void *source = reinterpret_cast<const void *>(request.address + offset);
        if (length <= kSlotBytes && is_shared_host_memory(request)) {
            piece = {request.shared, *claimed};
            memcpy(mailbox.slot(reserved), source, length);
        } else {
            transfer.finish(id, false);
            length = 0;
        }
    }
    memcpy(reserved.cell->payload, &piece, sizeof(piece));
    mailbox.publish(reserved, CellKind::help_piece, 0, static_cast<uint32_t>(length));
    tickets_[sent_++ % kMaxSlotPieces] = reserved.ticket;
    sent_at_ = monotonic_nanoseconds();
    if (length != 0) {
        transfer.finish(id, true);
    }
    return length != 0 ? Help::given : Help::over;
}

/** One piece into the reader's memory. */
HostReadHelper::Help HostReadHelper::help_by_cma(const HelpRequest &request) {
    SharedTransfer &transfer = channel_.mailbox.shared_transfer(request.shared.index);
    const uint32_t id = request.shared.id;
    const std::optional<uint32_t> piece = transfer.claim_last(id);
    if (!piece) {
        return Help::over;
    }
    const uint64_t offset = *piece * request.piece_bytes;
    const bool written =
        is_registered(request) &&
        write_memory(channel_.peer.pid, reinterpret_cast<const void *>(request.address + offset),
                     request.destination + offset,
                     length_of_piece(offset, request.piece_bytes, request.length));
    transfer.finish(id, written);
    return written ? Help::given : Help::over;
}

unsigned HostReadHelper::progress() {
    unsigned count = 0;
    unsigned most = kPiecesPerProgress;
    while (!requests_.empty() && count < most) {
        const HelpRequest &request = requests_.front();
        most = request.by_slots != 0 ? kSlotPiecesPerProgress : kPiecesPerProgress;
        const Help help = request.by_slots != 0 ? help_by_slot(request) : help_by_cma(request);
        if (help == Help::given) {
            ++count;
        } else if (help == Help::no_room &&
                   monotonic_nanoseconds() - sent_at_ < kReaderPatienceNs) {
            break;
        } else {
            requests_.pop_front();  // a reader that takes nothing out does not wait either
        }
    }
    return count;
}

}  // namespace gpushm
