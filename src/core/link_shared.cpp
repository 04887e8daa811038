// SPDX-License-Identifier: BSD-3-Clause
// Transfers of a link between host memory, by the kernel (cross memory attach): one copy instead
// of two, which the reader begins at once and in which the process that has the data helps as soon
// as it can, so that large ones have both CPUs (SharedTransfer). Where the kernel refuses, the
// staging ring is taken.
#include "core/link.hpp"

#include "core/cross_memory.hpp"
#include "core/log.hpp"
#include "core/monotonic_clock.hpp"
#include "core/port.hpp"
#include "core/registration_table.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace gpushm {
namespace {

// The peer begins to help about a microsecond after it was asked. 64 KiB of which each side copies a half take 5.0 us,
// and 6.4 where one side copies all (two cores, EPYC 9004); the second half of a peer that is busy costs another system
// call, 0.3 to 1.5 us. Less is read within get(): to keep an account of it took 0.3 us of the 2.3 that a message of
// 16 KiB took (H200 node).
constexpr uint64_t kSmallestHelped = 64u << 10;

constexpr uint64_t kUsualPiece = 64u << 10;

constexpr uint64_t kPageBytes = 4096;

// Pieces that are copied in one call of progress(), so that messages are served between.
constexpr unsigned kPiecesPerProgress = 2;

// For a peer that lives and holds a piece that it does not finish (it was stopped, say).
constexpr std::chrono::seconds kHelperPatience{2};

// No process number is given to another process sooner: the kernel goes through all others before (Linux
// kernel/pid.c, alloc_pid(): idr_alloc_cyclic()).
constexpr uint64_t kSoonestReuseNs = 1'000'000;

/** Equal pieces, at least two of what is helped with, whose number fits a SharedTransfer. */
uint64_t choose_piece_bytes(uint64_t length) {
    const uint64_t pieces = std::clamp<uint64_t>((length + kUsualPiece - 1) / kUsualPiece, 2, 32);
    const uint64_t share = (length + pieces - 1) / pieces;
    return (share + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/** The bytes of one piece: from its offset, at most to the end of the transfer. */
uint64_t length_of_piece(uint64_t offset, uint64_t piece_bytes, uint64_t length) {
    return offset < length ? std::min(piece_bytes, length - offset) : 0;
}

}  // namespace

// ---------------------------------------------------------------- the permission of a helper

/** Waits until a helper has ended the `count` pieces that it has claimed; false when it does not. */
bool Link::wait_for_helper(const SharedTransfer &transfer, uint32_t id, uint32_t count) {
    const auto end = std::chrono::steady_clock::now() + kHelperPatience;
    while (count != 0 && transfer.helper(id, count) == SharedTransfer::Helper::busy) {
        if (!peer_alive()) {
            return true;  // its copies ended with it
        }
        if (helper_hangs_) {
            return false;  // it had its time
        }
        if (std::chrono::steady_clock::now() > end) {
            helper_hangs_ = true;
            GPUSHM_LOG(error, "process %d does not end a copy into this process's memory that it has "
                       "begun: it was stopped, or hangs", peer_.pid);
            return false;
        }
    }
    return true;
}

/** Ends a permission; on return nothing is written by it. */
void Link::revoke(const SharedUse &use, uint32_t pieces) {
    if (!use.exists()) {
        return;
    }
    SharedTransfer &transfer = port_.shared_transfer(use.index);
    const uint32_t first = transfer.close(use.id, pieces);
    if (wait_for_helper(transfer, use.id, pieces - first)) {
        port_.release_shared_transfer(use.index);
    }
}

// ---------------------------------------------------------------- the reader

void Link::revoke_shared_reads() {
    for (const SharedRead &read : shared_reads_) {
        revoke(read.shared, read.pieces);
    }
    shared_reads_.clear();
}

/** Whether the kernel may be asked to read what the CPU copies on both sides. */
bool Link::may_read(const BufferName &buffer, bool local_on_gpu) const {
    return port_.config().cma && !cma_refused_ && buffer.owner != 0 && buffer.cpu_copies() &&
           !local_on_gpu;
}

/** True when a get, of little, is over. */
bool Link::read_at_once(void *local, size_t length, const RemoteMemory &remote, bool local_on_gpu) {
    if (length >= kSmallestHelped || !may_read(remote.buffer, local_on_gpu)) {
        return false;
    }
    if (read_memory(peer_.pid, local, remote.address, length)) {
        return true;
    }
    note_refused_read(remote.buffer);
    return false;
}

bool Link::start_shared_read(uint64_t id) {
    const Operation &operation = operations_[id];
    if (!may_read(operation.remote.buffer, operation.local_on_gpu)) {
        return false;
    }
    SharedRead read = {};
    read.id = id;
    read.piece_bytes = choose_piece_bytes(operation.length);
    read.pieces =
        static_cast<uint32_t>((operation.length + read.piece_bytes - 1) / read.piece_bytes);
    // A request that had to wait would be of no use, and of a peer that makes no progress there would be ever more.
    if (operation.length >= kSmallestHelped && control_.empty() && mailbox_.has_room()) {
        read.shared = port_.take_shared_transfer();
    }
    if (read.shared.exists()) {
        port_.shared_transfer(read.shared.index).open(read.shared.id, read.pieces);
        send_control(CellKind::help_request,
                     HelpRequest{operation.remote.address, operation.length,
                                 operation.remote.registration,
                                 reinterpret_cast<uint64_t>(operation.local), read.piece_bytes,
                                 read.shared, monotonic_nanoseconds()});
    }
    shared_reads_.push_back(read);
    return true;
}

/** The next piece to read; empty when none is left. */
std::optional<uint32_t> Link::next_piece(SharedRead &read) {
    if (read.shared.exists()) {
        return port_.shared_transfer(read.shared.index).claim_first(read.shared.id);
    }
    return read.next < read.pieces ? std::optional<uint32_t>(read.next++) : std::nullopt;
}

unsigned Link::progress_shared_reads() {
    unsigned count = 0;
    size_t index = 0;  // those before it wait for their helpers
    while (index < shared_reads_.size() && count < kPiecesPerProgress) {
        SharedRead &read = shared_reads_[index];
        const Operation &operation = operations_[read.id];
        const std::optional<uint32_t> piece = next_piece(read);
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
            give_up_shared_read(index);
        }
        ++count;
    }
    return count;
}

/** All pieces are claimed: true when the helper has written his too and the get has ended. */
bool Link::finish_shared_read(size_t index) {
    const SharedRead read = shared_reads_[index];
    if (read.shared.exists()) {
        const uint32_t use = read.shared.id;
        SharedTransfer &transfer = port_.shared_transfer(read.shared.index);
        const uint32_t helped = read.pieces - transfer.first_of_helper(use, read.pieces);
        switch (transfer.helper(use, helped)) {
        case SharedTransfer::Helper::busy: return false;
        case SharedTransfer::Helper::failed:
            if (helped != 0) {
                give_up_shared_read(index);
                return true;
            }
            break;
        case SharedTransfer::Helper::done: break;
        }
        revoke(read.shared, read.pieces);
    }
    shared_reads_.erase(shared_reads_.begin() + static_cast<ptrdiff_t>(index));
    end_operation(read.id, Status::ok);
    return true;
}

/** The kernel refuses: later transfers go through the ring. */
void Link::note_refused_read(const BufferName &buffer) {
    // Managed memory is one buffer's matter: its pages may have moved to the GPU.
    cma_refused_ |= buffer.kind != MemoryKind::managed;
    GPUSHM_LOG(debug, "the kernel does not let this process read the memory of process %d (%s): large "
               "messages between hosts go through the staging ring", peer_.pid, strerror(errno));
}

/** This one does, too. */
void Link::give_up_shared_read(size_t index) {
    const SharedRead read = shared_reads_[index];
    shared_reads_.erase(shared_reads_.begin() + static_cast<ptrdiff_t>(index));
    note_refused_read(operations_[read.id].remote.buffer);
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
        GPUSHM_LOG(error, "process %d asked for nonsense: ignored; look for memory corruption in the "
                   "job's processes", peer_.pid);
        return;
    }
    // Nothing is written into a process that has got the number of a dead one. To ask takes 0.5 us, so only when
    // there was time for that (or it was asked in the future, by the clock of another time namespace).
    if (monotonic_nanoseconds() - request.asked_at > kSoonestReuseNs && !peer_alive()) {
        return;
    }
    help_.push_back(request);
    port_.activate(*this);
}

unsigned Link::progress_help() {
    unsigned count = 0;
    while (!help_.empty() && count < kPiecesPerProgress) {
        const HelpRequest &request = help_.front();
        SharedTransfer &transfer = mailbox_.shared_transfer(request.shared.index);
        const uint32_t id = request.shared.id;
        const std::optional<uint32_t> piece = transfer.claim_last(id);
        if (!piece) {
            help_.pop_front();
            continue;
        }
        const uint64_t offset = *piece * request.piece_bytes;
        const bool written =
            RegistrationTable::instance().covers(request.registration, request.address,
                                                 request.length) &&
            write_memory(peer_.pid, reinterpret_cast<const void *>(request.address + offset),
                         request.destination + offset,
                         length_of_piece(offset, request.piece_bytes, request.length));
        transfer.finish(id, written);
        if (!written) {
            help_.pop_front();
        }
        ++count;
    }
    return count;
}

}  // namespace gpushm
