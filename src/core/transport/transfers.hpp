// SPDX-License-Identifier: BSD-3-Clause
// Puts and gets of a connection: each takes the path that choose_path() names, and another one when
// that fails.
#pragma once

#include "core/base/immovable.hpp"
#include "core/transport/block_transfers.hpp"
#include "core/transport/direct_transfers.hpp"
#include "core/transport/host_reads.hpp"
#include "core/transport/offered_reads.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/peer_memory.hpp"
#include "core/transport/ring_receiver.hpp"
#include "core/transport/ring_sender.hpp"
#include "core/transport/transfer_path.hpp"
#include "core/transport/transfer_types.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

/** One thread at a time. */
class Transfers : Immovable {
public:
    Transfers(PeerChannel &channel, Operations &operations, WritePermissions &permissions,
              PeerMemory &memory, RingSender &sender, RingReceiver &receiver);

    /** Connection::put(). */
    Status put(const void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion);
    /** Connection::get(). */
    Status get(void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion);

    void receive_get_request(const GetRequest &request);
    void receive_done(const TransferDone &done);

    BlockTransfers &blocks() { return blocks_; }
    DirectTransfers &direct() { return direct_; }
    PeerMemory &memory() { return memory_; }
    HostReads &host_reads() { return host_reads_; }
    OfferedReads &offered_reads() { return offered_reads_; }

    /** Ends copies and reads, as far as they are complete; their number. */
    unsigned progress();
    /** Opens at most one handle that the peer has given, and starts what waited for it; the number
     * of handles. Last in a progress, because it may take long and the peer waits for the rest. */
    unsigned open_handles();
    bool busy() const {
        return direct_.busy() || host_reads_.busy() || offered_reads_.busy() || memory_.busy();
    }

    /** After the copies of the owner have ended. */
    void cancel(Operations::Cancellation &cancellation);
    /** The peer's memory is not mapped any more, and nobody tells when it is freed. */
    void forget_mappings();

private:
    /** A transfer that waits for the mapping of the peer's buffer. */
    struct Held {
        uint64_t id;
        uint64_t buffer_id;
        std::optional<ChunkedTransfer> put;  // else a get
    };

    struct TakeBack;
    /** Takes an operation back if an exception ends its start. */
    using Start = std::unique_ptr<Transfers, TakeBack>;

    bool is_awaited(uint64_t buffer_id) const;
    bool is_left_to_sender(uint64_t id);
    void start_get(uint64_t id, PathChoice choice, PathQuery query);
    Status get_offered(Operation &&get);
    void ask_instead(uint64_t id);
    void start_put(const ChunkedTransfer &transfer, bool is_new);
    void release_held(uint64_t buffer_id);
    void end_direct_copy(DirectCopy &copy);
    void take_other_path(DirectCopy &copy);

    PeerChannel &channel_;
    Operations &operations_;
    RingSender &sender_;
    HostReads host_reads_;
    OfferedReads offered_reads_;
    PeerMemory &memory_;
    DirectTransfers direct_;
    BlockTransfers blocks_;
    PathParts parts_;
    std::vector<Held> held_;
};

}  // namespace gpushm
