// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/host_reads.hpp"

#include "core/base/addresses.hpp"
#include "core/base/cma.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/transport/host_pieces.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpushm {
namespace {

// Bytes of pieces. A reader and a helper share a get of up to kFewPieces of the usual ones evenly;
// longer gets have longer pieces. Messages are served between pieces, so none is very long.
constexpr uint64_t kUsualPiece = 64u << 10;
constexpr uint64_t kLongestPiece = 1u << 20;
constexpr uint64_t kPieceWithoutHelp = 128u << 10;
constexpr uint64_t kFewPieces = 32;

constexpr uint64_t kPageBytes = 4096;

uint64_t whole_pages(uint64_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint64_t pieces_of(uint64_t length, uint64_t piece_bytes) {
    return (length + piece_bytes - 1) / piece_bytes;
}

/** Equal pieces, at least two of what is helped with. */
uint64_t choose_piece_bytes(uint64_t length, bool is_helped) {
    const uint64_t shared =
        std::max(std::clamp<uint64_t>(pieces_of(length, kUsualPiece), 2, kFewPieces),
                 std::min<uint64_t>(pieces_of(length, kLongestPiece), SharedTransfer::kMaxPieces));
    return whole_pages(
        pieces_of(length, is_helped ? shared : pieces_of(length, kPieceWithoutHelp)));
}

}  // namespace

// ---------------------------------------------------------------- start

bool HostReads::may_read(const RemoteMemory &remote, bool local_on_gpu) const {
    const BufferKey &buffer = remote.buffer;
    return channel_.port.config().cma && !refused_ && buffer.owner != 0 && buffer.cpu_copies() &&
           !local_on_gpu && channel_.is_current(remote);
}

bool HostReads::read_now(void *local, size_t length, const RemoteMemory &remote) {
    if (!read_memory(channel_.peer.pid, local, remote.address, length)) {
        note_refused(remote.buffer);
        return false;
    }
    return channel_.is_current(remote);
}

void HostReads::start(uint64_t id) {
    const Operation &operation = operations_.at(id);
    permissions_.prepare();
    Read &read = reads_.emplace_back();  // first: whoever takes the operation back finds it
    read.id = id;
    operations_.count_part(id, 1);
    if (operation.length >= kSmallestHelped && help_with(operation.length).may_try() &&
        can_ask_for_help()) {
        read.shared = channel_.port.take_shared_transfer();
    }
    read.piece_bytes = choose_piece_bytes(operation.length, read.shared.exists());
    read.pieces = static_cast<uint32_t>(pieces_of(operation.length, read.piece_bytes));
    if (read.shared.exists()) {
        ask_for_help(read);
    }
}

/** A peer that computes, or that reads itself, has no time to help. Then a request and pieces that
 * are small enough for two processes only cost time. */
Attempts &HostReads::help_with(uint64_t length) {
    return help_[static_cast<size_t>(63 - __builtin_clzll(length | 1))];
}

void HostReads::ask_for_help(const Read &read) {
    const Operation &operation = operations_.at(read.id);
    channel_.port.shared_transfer(read.shared.index).open(read.shared.id, read.pieces);
    channel_.send(CellKind::help_request,
                  HelpRequest{operation.remote.address, operation.length,
                              operation.remote.registration, to_number(operation.local),
                              read.piece_bytes, read.shared, monotonic_nanoseconds()});
}

// ---------------------------------------------------------------- progress

/** The next piece to read; empty when none is left. */
std::optional<uint32_t> HostReads::next_piece(Read &read) {
    if (read.shared.exists()) {
        return channel_.port.shared_transfer(read.shared.index).claim_first(read.shared.id);
    }
    return read.next < read.pieces ? std::optional<uint32_t>(read.next++) : std::nullopt;
}

unsigned HostReads::progress() {
    unsigned count = 0;
    size_t index = 0;  // those before it wait for their helpers
    while (index < reads_.size() && count < kPiecesPerProgress) {
        Read &read = reads_[index];
        const Operation &operation = operations_.at(read.id);
        const std::optional<uint32_t> piece = next_piece(read);
        if (!piece) {
            if (finish(index)) {
                ++count;
            } else {
                ++index;
            }
            continue;
        }
        const uint64_t offset = *piece * read.piece_bytes;
        if (!read_memory(channel_.peer.pid, operation.local + offset,
                         operation.remote.address + offset,
                         length_of_piece(offset, read.piece_bytes, operation.length))) {
            give_up(index, true);
        }
        ++count;
    }
    return count;
}

/** This process has no piece to claim: true when the helper has copied all of its pieces and the
 * get has ended. */
bool HostReads::finish(size_t index) {
    const Read read = reads_[index];
    if (read.shared.exists()) {
        const uint32_t use = read.shared.id;
        const SharedTransfer &transfer = channel_.port.shared_transfer(read.shared.index);
        const uint32_t helped = read.pieces - transfer.first_of_helper(use, read.pieces);
        const SharedTransfer::Helper state = transfer.helper(use, helped);
        if (state == SharedTransfer::Helper::failed && helped != 0) {
            give_up(index, true);
            return true;
        }
        if (state == SharedTransfer::Helper::busy) {
            return false;
        }
        help_with(operations_.at(read.id).length).note(helped != 0);
    }
    if (!channel_.is_current(operations_.at(read.id).remote)) {
        give_up(index, false);
        return true;
    }
    operations_.end(take_out(index), Status::ok);
    return true;
}

/** Ends a read; returns the id of its operation. */
uint64_t HostReads::take_out(size_t index) {
    const Read read = reads_[index];
    reads_.erase(reads_.begin() + static_cast<ptrdiff_t>(index));
    operations_.count_part(read.id, -1);
    permissions_.revoke(read.shared, read.pieces);
    return read.id;
}

// ---------------------------------------------------------------- the end

/** Later transfers go through the ring. */
void HostReads::note_refused(const BufferKey &buffer) {
    // Managed memory is one buffer's matter: its pages may have moved to the GPU.
    refused_ |= buffer.kind != MemoryKind::managed;
    GPUSHM_LOG(debug,
               "process_vm_readv cannot read the memory of process %d (%s): large messages between "
               "host buffers go through the staging ring",
               channel_.peer.pid, strerror(errno));
}

/** The get goes through the ring. `refused`: the operating system does not copy for this process,
 * or for the helper. */
void HostReads::give_up(size_t index, bool refused) {
    if (refused) {
        note_refused(operations_.at(reads_[index].id).remote.buffer);
    }
    operations_.ask_peer(take_out(index), false);
}

}  // namespace gpushm
