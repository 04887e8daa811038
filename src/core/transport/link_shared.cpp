// SPDX-License-Identifier: BSD-3-Clause
// Transfers of a link between host memory, by the kernel (cross memory attach): one copy instead
// of two, which the reader begins at once and in which the process that has the data helps as soon
// as it can, so that large ones have both CPUs (SharedTransfer). Where it proves to be quicker
// (HostTransferWays) the other process copies all of it to slots of the reader's mailbox, and the
// reader from there; if it does not, since it is busy, the kernel is asked after all. Where the
// kernel refuses, the staging ring is taken.
#include "core/transport/link.hpp"

#include "core/base/cma.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/base/no_throw.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/registration_table.hpp"
#include "core/transport/port.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace gpushm {
namespace {

// The peer begins to help about a microsecond after it was asked. 64 KiB of which each side copies
// a half take 5.0 us, and 6.4 where one side copies all (two cores, EPYC 9004); the second half of
// a peer that is busy costs another system call, 0.3 to 1.5 us. Less is read within get(): to keep
// an account of it took 0.3 us of the 2.3 that a message of 16 KiB took (H200 node).
constexpr uint64_t kSmallestHelped = 64u << 10;

constexpr uint64_t kUsualPiece = 64u << 10;

// In slots: so that both sides copy at the same time. A piece costs a cell and a claim, 0.1 us.
constexpr uint64_t kSmallestSlotPiece = 8u << 10;
constexpr uint64_t kLargestSlotPiece = 32u << 10;
static_assert(kLargestSlotPiece <= kSlotBytes, "it fits a slot");

constexpr uint64_t kPageBytes = 4096;

// Pieces that are copied in one call of progress(), so that messages are served between.
constexpr unsigned kPiecesPerProgress = 2;
constexpr unsigned kSlotPiecesPerProgress = 4;

// Of who waits for pieces in slots, from one to the next. A helper that waits, too, sees the
// request within 2 us and copies a piece in 1 to 6; one that does something else may do so for
// long, and the kernel needs no helper.
constexpr uint64_t kPiecePatienceNs = 20'000;

// Of a helper: a reader that takes nothing out of its mailbox for so long does without it.
constexpr uint64_t kReaderPatienceNs = 1'000'000;

// For a peer that lives and holds a piece that it does not finish (it was stopped, say).
constexpr std::chrono::seconds kHelperPatience{2};

// No process number is given to another process sooner: the kernel goes through all others before
// (Linux kernel/pid.c, alloc_pid(): idr_alloc_cyclic()).
constexpr uint64_t kSoonestReuseNs = 1'000'000;

/** Equal pieces, at least two of what is helped with, whose number fits a SharedTransfer. */
uint64_t choose_piece_bytes(uint64_t length) {
    const uint64_t pieces = std::clamp<uint64_t>((length + kUsualPiece - 1) / kUsualPiece, 2, 32);
    const uint64_t share = (length + pieces - 1) / pieces;
    return (share + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint64_t choose_slot_piece(uint64_t length) {
    const uint64_t quarter = (length / 4 + kPageBytes - 1) / kPageBytes * kPageBytes;
    return std::clamp(quarter, kSmallestSlotPiece, kLargestSlotPiece);
}

/** That the peer may read, and the CPU can. */
bool is_shared_host_memory(const HelpRequest &request) {
    const MemoryKind kind = query_memory(reinterpret_cast<const void *>(request.address)).kind;
    return (kind == MemoryKind::host || kind == MemoryKind::pinned) &&
           RegistrationTable::instance().covers(request.registration, request.address,
                                                request.length);
}

/** The bytes of one piece: from its offset, at most to the end of the transfer. */
uint64_t length_of_piece(uint64_t offset, uint64_t piece_bytes, uint64_t length) {
    return offset < length ? std::min(piece_bytes, length - offset) : 0;
}

}  // namespace

// ---------------------------------------------------------------- the permission of a helper

/** Ends a permission; nothing is written by it after await_closed_uses(). */
void Link::close_use(const SharedUse &use, uint32_t pieces) {
    if (!use.exists()) {
        return;
    }
    const uint32_t claimed = pieces - port_.shared_transfer(use.index).close(use.id, pieces);
    const ClosedUse closed = {use, claimed};
    if (helper_writes(closed)) {
        closed_uses_.push_back(closed);
    } else {
        port_.release_shared_transfer(use.index);
    }
}

bool Link::helper_writes(const ClosedUse &closed) const {
    return closed.claimed != 0 &&
           port_.shared_transfer(closed.use.index).helper(closed.use.id, closed.claimed) ==
               SharedTransfer::Helper::busy;
}

/** Waits until the peer has ended what it has claimed of all of them, or does not: then others may
 * have the words, for whatever it still says is of another use. */
void Link::await_closed_uses() {
    if (closed_uses_.empty()) {
        return;  // as after most operations
    }
    const auto end = std::chrono::steady_clock::now() + kHelperPatience;
    bool waits = true;
    while (waits &&
           std::any_of(closed_uses_.begin(), closed_uses_.end(),
                       [this](const ClosedUse &closed) { return helper_writes(closed); })) {
        as_possible([this] { end_own_pushes(); });
        as_possible([this] {
            port_.end_own_pushes();
        });                    // of all links: processes may wait for each other in a ring
        waits = peer_alive();  // its copies ended with it
        if (waits && std::chrono::steady_clock::now() > end) {
            waits = false;
            GPUSHM_LOG(error,
                       "process %d does not end a copy into this process's memory that it has "
                       "begun: it was stopped, or hangs",
                       peer_.pid);
        }
    }
    for (const ClosedUse &closed : closed_uses_) {
        port_.release_shared_transfer(closed.use.index);
    }
    closed_uses_.clear();
}

/** Ends a permission; on return nothing is written by it. */
void Link::revoke(const SharedUse &use, uint32_t pieces) {
    close_use(use, pieces);
    await_closed_uses();
}

// ---------------------------------------------------------------- the reader

/** As close_use(), of all that peers may write. */
void Link::close_all_uses() {
    for (const SharedRead &read : shared_reads_) {
        close_use(read.shared, read.pieces);
    }
    shared_reads_.clear();
    for (auto &[id, operation] : operations_) {
        close_use(operation.shared, 1);
        operation.shared = SharedUse();
    }
}

/** Whether the registration lives: else what was read there by this process, or would be, may be
 * something else by now, and the peer is to look itself. */
bool Link::is_current(const RemoteMemory &remote) const {
    return mailbox_.registrations().contains(remote.registration);
}

/** Whether the kernel may be asked to read what the CPU copies on both sides. */
bool Link::may_read(const RemoteMemory &remote, bool local_on_gpu) const {
    const BufferKey &buffer = remote.buffer;
    return port_.config().cma && !cma_refused_ && buffer.owner != 0 && buffer.cpu_copies() &&
           !local_on_gpu && is_current(remote);
}

/** Of a get between hosts that the kernel may copy; others have no choice. */
std::optional<HostTransferWays::Way> Link::choose_host_way(const RemoteMemory &remote,
                                                           size_t length, const MemoryInfo &local,
                                                           bool local_on_gpu) {
    using Way = HostTransferWays::Way;
    const bool may_be_read = may_read(remote, local_on_gpu);
    // Managed memory may move while the CPU copies it.
    const bool has_choice = may_be_read && HostTransferWays::covers(length) &&
                            local.kind != MemoryKind::managed &&
                            remote.buffer.kind != MemoryKind::managed;
    if (!has_choice) {
        host_rounds_.forget();
        return may_be_read ? std::optional<Way>(Way::kernel) : std::nullopt;
    }
    const Way way = host_rounds_.choose(length, !operations_.empty(), port_.progress_number());
    if (way == Way::slots && !(can_ask_for_help() && port_.has_many_shared_transfers())) {
        host_rounds_.take_back();
        return Way::kernel;
    }
    return way;
}

/** True when a get, of little, is over. */
bool Link::read_at_once(void *local, size_t length, const RemoteMemory &remote) {
    if (length >= kSmallestHelped) {
        return false;
    }
    if (!read_memory(peer_.pid, local, remote.address, length)) {
        note_refused_read(remote.buffer);
        return false;
    }
    if (!is_current(remote)) {
        return false;
    }
    host_rounds_.note_end(operations_.empty());
    return true;
}

/** False: the kernel has just refused to copy. */
bool Link::start_shared_read(uint64_t id, HostTransferWays::Way way) {
    const Operation &operation = operations_[id];
    if (!may_read(operation.remote, operation.local_on_gpu)) {
        return false;
    }
    closed_uses_.reserve(kSharedTransfers);  // close_use() allocates nothing
    SharedRead &read =
        shared_reads_.emplace_back();  // first: whoever takes the operation back finds it
    read.id = id;
    count_part(id, 1);
    read.by_slots = way == HostTransferWays::Way::slots;
    if (read.by_slots || (operation.length >= kSmallestHelped && can_ask_for_help())) {
        read.shared = port_.take_shared_transfer();
    }
    read.piece_bytes =
        read.by_slots ? choose_slot_piece(operation.length) : choose_piece_bytes(operation.length);
    read.pieces =
        static_cast<uint32_t>((operation.length + read.piece_bytes - 1) / read.piece_bytes);
    if (read.shared.exists()) {
        ask_for_help(read);
    }
    read.waits = read.by_slots;  // at last: ask_for_help() looks whether others wait
    return true;
}

void Link::ask_for_help(const SharedRead &read) {
    const Operation &operation = operations_[read.id];
    const uint64_t now = monotonic_nanoseconds();
    if (read.by_slots) {
        port_.expect_slots();
        if (!waits_for_pieces()) {
            piece_heard_ = now;
        }
    }
    port_.shared_transfer(read.shared.index).open(read.shared.id, read.pieces);
    send_control(
        CellKind::help_request,
        HelpRequest{operation.remote.address, operation.length, operation.remote.registration,
                    reinterpret_cast<uint64_t>(operation.local), read.piece_bytes, read.shared, now,
                    read.by_slots ? 1u : 0u, 0});
}

bool Link::waits_for_pieces() const {
    return std::any_of(shared_reads_.begin(), shared_reads_.end(),
                       [](const SharedRead &read) { return read.waits; });
}

/** When the helper is late. */
void Link::stop_waiting_for_pieces() {
    if (waits_for_pieces() && monotonic_nanoseconds() - piece_heard_ >= kPiecePatienceNs) {
        for (SharedRead &read : shared_reads_) {
            read.waits = false;
        }
    }
}

/** The next piece to read; empty when none is left. */
std::optional<uint32_t> Link::next_piece(SharedRead &read) {
    if (read.shared.exists()) {
        return port_.shared_transfer(read.shared.index).claim_first(read.shared.id);
    }
    return read.next < read.pieces ? std::optional<uint32_t>(read.next++) : std::nullopt;
}

unsigned Link::progress_shared_reads() {
    stop_waiting_for_pieces();
    unsigned count = 0;
    size_t index = 0;  // those before it wait for their helpers
    while (index < shared_reads_.size() && count < kPiecesPerProgress) {
        SharedRead &read = shared_reads_[index];
        const Operation &operation = operations_[read.id];
        const std::optional<uint32_t> piece = read.waits ? std::nullopt : next_piece(read);
        if (!piece) {
            if (finish_shared_read(index)) {
                ++count;
            } else {
                ++index;
            }
            continue;
        }
        const uint64_t offset = *piece * read.piece_bytes;
        if (!read_memory(peer_.pid, operation.local + offset, operation.remote.address + offset,
                         length_of_piece(offset, read.piece_bytes, operation.length))) {
            give_up_shared_read(index, true);
        }
        ++count;
    }
    return count;
}

/** This process has no piece to claim: true when the helper has copied all of his and the get has
 * ended. */
bool Link::finish_shared_read(size_t index) {
    const SharedRead read = shared_reads_[index];
    if (read.waits && read.arrived < read.pieces) {
        return false;  // and does not look at words that the helper writes
    }
    if (read.shared.exists()) {
        const uint32_t use = read.shared.id;
        SharedTransfer &transfer = port_.shared_transfer(read.shared.index);
        const uint32_t helped = read.pieces - transfer.first_of_helper(use, read.pieces);
        const SharedTransfer::Helper state = transfer.helper(use, helped);
        if (state == SharedTransfer::Helper::failed && helped != 0) {
            give_up_shared_read(index, !read.by_slots);
            return true;
        }
        if (state == SharedTransfer::Helper::busy || (read.by_slots && read.arrived < helped)) {
            return false;
        }
    }
    if (!is_current(operations_[read.id].remote)) {
        give_up_shared_read(index, false);
        return true;
    }
    revoke(read.shared, read.pieces);
    shared_reads_.erase(shared_reads_.begin() + static_cast<ptrdiff_t>(index));
    count_part(read.id, -1);
    end_operation(read.id, Status::ok);
    return true;
}

/** The kernel refuses: later transfers go through the ring. */
void Link::note_refused_read(const BufferKey &buffer) {
    // Managed memory is one buffer's matter: its pages may have moved to the GPU.
    cma_refused_ |= buffer.kind != MemoryKind::managed;
    GPUSHM_LOG(debug,
               "the kernel does not let this process read the memory of process %d (%s): large "
               "messages between hosts go through the staging ring",
               peer_.pid, strerror(errno));
}

/** This one does, too. `refused`: the kernel does not copy for us, or for the helper. */
void Link::give_up_shared_read(size_t index, bool refused) {
    const SharedRead read = shared_reads_[index];
    shared_reads_.erase(shared_reads_.begin() + static_cast<ptrdiff_t>(index));
    count_part(read.id, -1);
    if (refused) {
        note_refused_read(operations_[read.id].remote.buffer);
    }
    host_rounds_.forget();
    revoke(read.shared, read.pieces);
    request_data(read.id, false);
}

// ---------------------------------------------------------------- the helper

/** Takes out the requests for transfers of which nothing is left to do. */
void Link::forget_served_help() {
    help_.erase(std::remove_if(help_.begin(), help_.end(),
                               [this](const HelpRequest &request) {
                                   return mailbox_.shared_transfer(request.shared.index)
                                       .all_claimed(request.shared.id);
                               }),
                help_.end());
}

void Link::receive_help_request(const HelpRequest &request) {
    const uint64_t pieces =
        request.piece_bytes == 0 ? 0 : (request.length - 1) / request.piece_bytes + 1;
    if (help_.size() >= kSharedTransfers) {
        forget_served_help();  // the reader did them alone, and uses their words for others
    }
    if (request.shared.index >= kSharedTransfers || request.length == 0 || pieces == 0 ||
        pieces > SharedTransfer::kMaxPieces || help_.size() >= kSharedTransfers) {
        GPUSHM_LOG(error,
                   "process %d asked for nonsense: ignored; look for memory corruption in the "
                   "job's processes",
                   peer_.pid);
        return;
    }
    // Nothing is written into a process that has got the number of a dead one. To ask takes 0.5 us,
    // so only when there was time for that (or it was asked in the future, by the clock of another
    // time namespace).
    if (monotonic_nanoseconds() - request.asked_at > kSoonestReuseNs && !peer_alive()) {
        return;
    }
    if (request.by_slots != 0 && !sends_slots_) {
        sends_slots_ = true;
        mailbox_.populate();
    }
    help_.push_back(request);
    port_.activate(*this);
}

/** What is not of a read that waits for it comes too late, or makes no sense. */
void Link::receive_help_piece(const HelpPiece &piece, const unsigned char *data, size_t length) {
    const auto read =
        std::find_if(shared_reads_.begin(), shared_reads_.end(), [&](const SharedRead &candidate) {
            return candidate.by_slots && candidate.shared.id == piece.shared.id;
        });
    if (read == shared_reads_.end() || piece.piece >= read->pieces) {
        return;
    }
    const Operation &operation = operations_[read->id];
    const uint64_t offset = piece.piece * read->piece_bytes;
    if (length != length_of_piece(offset, read->piece_bytes, operation.length)) {
        return;
    }
    memcpy(operation.local + offset, data, length);
    ++read->arrived;
    piece_heard_ = monotonic_nanoseconds();
}

/** Whether messages of others still find some when a piece is there, too. */
bool Link::has_room_for_piece() const {
    const bool are_many = slot_pieces_ >= kMaxSlotPieces &&
                          !mailbox_.is_received(slot_tickets_[slot_pieces_ % kMaxSlotPieces]);
    return !are_many && mailbox_.backlog() < mailbox_.cell_count() / 2;
}

/** One piece into a slot of the reader's mailbox. */
Link::Help Link::help_by_slot(const HelpRequest &request) {
    SharedTransfer &transfer = mailbox_.shared_transfer(request.shared.index);
    const uint32_t id = request.shared.id;
    if (transfer.all_claimed(id)) {
        return Help::over;
    }
    ReservedCell reserved;
    if (!has_room_for_piece() || !mailbox_.reserve(&reserved)) {
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
            memcpy(mailbox_.slot(reserved), source, length);
        } else {
            transfer.finish(id, false);
            length = 0;
        }
    }
    memcpy(reserved.cell->payload, &piece, sizeof(piece));
    mailbox_.publish(reserved, CellKind::help_piece, 0, static_cast<uint32_t>(length));
    slot_tickets_[slot_pieces_++ % kMaxSlotPieces] = reserved.ticket;
    slot_sent_ = monotonic_nanoseconds();
    if (length != 0) {
        transfer.finish(id, true);
    }
    return length != 0 ? Help::given : Help::over;
}

/** One piece into the reader's memory. */
Link::Help Link::help_by_kernel(const HelpRequest &request) {
    SharedTransfer &transfer = mailbox_.shared_transfer(request.shared.index);
    const uint32_t id = request.shared.id;
    const std::optional<uint32_t> piece = transfer.claim_last(id);
    if (!piece) {
        return Help::over;
    }
    const uint64_t offset = *piece * request.piece_bytes;
    const bool written =
        RegistrationTable::instance().covers(request.registration, request.address,
                                             request.length) &&
        write_memory(peer_.pid, reinterpret_cast<const void *>(request.address + offset),
                     request.destination + offset,
                     length_of_piece(offset, request.piece_bytes, request.length));
    transfer.finish(id, written);
    return written ? Help::given : Help::over;
}

unsigned Link::progress_help() {
    unsigned count = 0;
    unsigned most = kPiecesPerProgress;
    while (!help_.empty() && count < most) {
        const HelpRequest &request = help_.front();
        most = request.by_slots != 0 ? kSlotPiecesPerProgress : kPiecesPerProgress;
        const Help help = request.by_slots != 0 ? help_by_slot(request) : help_by_kernel(request);
        if (help == Help::given) {
            ++count;
        } else if (help == Help::no_room &&
                   monotonic_nanoseconds() - slot_sent_ < kReaderPatienceNs) {
            break;
        } else {
            help_.pop_front();  // a reader that takes nothing out does not wait for us either
        }
    }
    return count;
}

}  // namespace gpushm
