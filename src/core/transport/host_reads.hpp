// SPDX-License-Identifier: BSD-3-Clause
// Gets between host memory, by process_vm_readv (CMA).
//
// The reader begins at once. The process that has the data helps when it reads nothing itself, so
// that large transfers have both CPUs (SharedTransfer, HostReadHelper). Where the operating system
// refuses, the staging ring is taken.
#pragma once

#include "core/base/attempts.hpp"
#include "core/base/drop_if.hpp"
#include "core/base/immovable.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/write_permissions.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace gpushm {

/** One thread at a time. */
class HostReads : Immovable {
public:
    HostReads(PeerChannel &channel, Operations &operations, WritePermissions &permissions)
        : channel_(channel), operations_(operations), permissions_(permissions) {}

    /** Whether read_now() is for it. To keep an account of a short get costs more than to copy it
     * within the call (doc/decisions/host-transfers.md). */
    static constexpr bool is_short(uint64_t length) { return length < kSmallestHelped; }

    /** False: the CPU does not copy on both sides, or the operating system refuses. */
    bool may_read(const RemoteMemory &remote, bool local_on_gpu) const;
    /** At once. True when the data is there. */
    bool read_now(void *local, size_t length, const RemoteMemory &remote);
    /** After may_read(). */
    void start(uint64_t id);

    /** The number of pieces and ends. */
    unsigned progress();
    bool busy() const { return !reads_.empty(); }

    /** Gives up the operations of which `condition` says so by their ids. The peer may write until
     * WritePermissions::await(). */
    template <typename Condition>
    void drop_if(Condition condition) {
        gpushm::drop_if(reads_, [&](const Read &read) {
            const bool drops = condition(read.id);
            if (drops) {
                permissions_.close(read.shared, read.pieces);
            }
            return drops;
        });
    }

private:
    // Bytes. The peer begins to help about a microsecond after it was asked, and the second half of
    // a peer that is busy costs another system call (doc/decisions/host-transfers.md).
    static constexpr uint64_t kSmallestHelped = 64u << 10;

    /** A get that this process copies, perhaps with help of the peer. */
    struct Read {
        uint64_t id;
        uint64_t piece_bytes;
        uint32_t pieces;
        SharedUse shared;  // none: without help
        uint32_t next;     // without help: the piece that is read next
    };

    Attempts &help_with(uint64_t length);

    /** A request that had to wait would be of no use. A peer that makes no progress would get ever
     * more of them. */
    bool can_ask_for_help() const {
        return channel_.control.empty() && channel_.mailbox.has_room(Room::cell);
    }
    void ask_for_help(const Read &read);
    std::optional<uint32_t> next_piece(Read &read);
    bool finish(size_t index);
    uint64_t take_out(size_t index);
    void give_up(size_t index, bool refused);
    void note_refused(const BufferKey &buffer);

    PeerChannel &channel_;
    Operations &operations_;
    WritePermissions &permissions_;
    std::array<Attempts, 64> help_;  // by the number of bits of the length
    bool refused_ = false;           // the operating system does not copy between the two processes
    std::deque<Read> reads_;
};

}  // namespace gpushm
