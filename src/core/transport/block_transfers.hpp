// SPDX-License-Identifier: BSD-3-Clause
// Small puts and gets of GPU memory that follow one another: they are collected, and many of them
// are one message (CellKind::put_blocks, get_blocks). PeerBlocks has the other side.
#pragma once

#include "core/base/immovable.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/transfer_types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpushm {

/** One thread at a time. */
class BlockTransfers : Immovable {
public:
    BlockTransfers(PeerChannel &channel, Operations &operations)
        : channel_(channel), operations_(operations) {}

    /** Whether a put or get is collected with others: a small one between host memory and the
     * peer's GPU memory, while many are under way. */
    bool takes(const void *local, size_t length, const RemoteMemory &remote) const;
    /** Connection::put(), for what takes() accepts. The data is copied within the call. */
    Status put(const void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion);
    /** Connection::get(), for what takes() accepts. */
    Status get(void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion);

    /** Whether a put or get of this range has to wait for blocks that are not there yet. */
    bool delay_put(uint64_t address, uint64_t length) const {
        return delay_get(address, length) || overlap(CellKind::get_blocks, address, length);
    }
    bool delay_get(uint64_t address, uint64_t length) const {
        return overlap(CellKind::put_blocks, address, length);
    }

    /** Sends what is collected, unless a message of blocks is under way and neither flush nor fence
     * waits for the rest: more may follow. The number of messages. */
    unsigned progress();
    /** The peer's answer. `slot`: the data. */
    void receive_data(const BlockData &answer, const unsigned char *slot, size_t slot_length);

    /** The connection fails: what is collected is not sent. */
    void clear() { open_.reset(); }

private:
    /** A message that is being collected. Its operation exists. */
    struct Open {
        CellKind kind;
        BlockMessage message;
        uint64_t begin;  // of the peer's memory
        uint64_t end;    // behind the last byte
        std::vector<Block> blocks;
        std::vector<unsigned char> data;  // of puts
        size_t bytes;                     // of all blocks
    };

    bool are_under_way() const {
        return operations_.put_blocks().held() != 0 || operations_.get_blocks().held() != 0;
    }
    void publish();
    bool fits_open(CellKind kind, size_t length, const RemoteMemory &remote, const void *owner);
    WrittenRanges &sent(CellKind kind) const;  // messages of blocks that are under way
    bool overlap(CellKind kind, uint64_t address, uint64_t length) const;
    Status open_for(CellKind kind, size_t length, const RemoteMemory &remote, const void *owner);
    void add(const JoinedTransfer &transfer, const RemoteMemory &remote);

    PeerChannel &channel_;
    Operations &operations_;
    std::optional<Open> open_;
};

}  // namespace gpushm
