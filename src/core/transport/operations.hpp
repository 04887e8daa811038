// SPDX-License-Identifier: BSD-3-Clause
// Operations of this process on one connection: their order, their completions, flush and fence.
#pragma once

#include "core/base/immovable.hpp"
#include "core/transport/claimed_read.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/transfer_types.hpp"
#include "core/transport/write_permissions.hpp"
#include "core/transport/written_ranges.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace gpushm {

/** One of the small puts or gets that are one operation (BlockTransfers). */
struct JoinedTransfer {
    Completion completion;
    unsigned char *local;  // of a get; null for a put
    size_t length;         // bytes
};

/** An operation that this process started and that has not ended. */
struct Operation {
    const void *owner;  // tells the users of one connection apart
    Completion completion;
    bool failed = false;
    unsigned char *local = nullptr;  // get only, as what follows
    MemoryInfo local_info = {};
    bool local_on_gpu = false;  // gpu_copies()
    uint64_t length = 0;        // bytes
    uint64_t arrived = 0;       // bytes
    RemoteMemory remote = {};
    SharedUse shared = {};               // permits the peer to write `local`
    WrittenRanges::Hold held = nullptr;  // in written() or read()
    ClaimedRead claimed = {};            // while it reads remote.offer itself
    bool is_message = false;
    /** Chunked transfers, spans and copies of it. While there are some, its memory is read or
     * written. */
    unsigned parts = 0;
    /** In the order in which they were started, for one owner. Empty: it is none of blocks, or was
     * cancelled. */
    std::vector<JoinedTransfer> joined = {};
    size_t joined_ended = 0;     // from the front
    bool awaits_blocks = false;  // CellKind::block_data will come

    bool is_get() const { return local != nullptr; }
};

/** One thread at a time. */
class Operations : Immovable {
public:
    Operations(PeerChannel &channel, WritePermissions &permissions)
        : channel_(channel), permissions_(permissions) {}

    /** Its id. */
    uint64_t start(Operation &&operation);
    /** Forgets an operation that could not be started. Nobody is told of its end, and what the
     * peer still sends for it is dropped. */
    void take_back(uint64_t id);
    /** Completes it, if it has not been cancelled. The completion may start other operations. */
    void end(uint64_t id, Status status);

    /** Null: it was cancelled. */
    Operation *find(uint64_t id) {
        const auto found = operations_.find(id);
        return found != operations_.end() ? &found->second : nullptr;
    }
    /** The operation must exist. */
    Operation &at(uint64_t id) { return operations_.find(id)->second; }
    bool empty() const { return operations_.empty(); }
    size_t size() const { return operations_.size(); }
    /** The id of the next operation; ids grow. */
    uint64_t next_id() const { return next_id_; }
    bool all_ended_before(uint64_t id) const {
        return operations_.empty() || operations_.begin()->first >= id;
    }
    /** Asks the peer for what the get `id` reads: it sends the data, or writes it by itself.
     * `may_be_pushed`: it may do so through a mapping of its own. */
    void ask_peer(uint64_t id, bool may_be_pushed);
    /** Something begins (1) or ends (-1) that reads or writes the memory of an operation, if that
     * has not been cancelled. */
    void count_part(uint64_t id, int change);

    /** Ends a get that has read all of its data, in the next progress(). */
    Status end_get_soon(const void *owner, const Completion &completion);
    /** Completes gets that have ended; their number. */
    unsigned complete_ended_gets();

    /** ok when all that was started has completed, else in_progress and completes then. */
    Status flush(const void *owner, const Completion &completion);
    void complete_flushes(Status status);

    /** What starts later waits until all that was started has ended. */
    void fence() { fence_id_ = next_id_; }
    bool fence_pending() const { return !all_ended_before(fence_id_); }
    /** Whether a flush or a fence waits for the operation `id`, which has not ended. */
    bool is_awaited(uint64_t id) const {
        return id < fence_id_ || (!flushes_.empty() && id <= flushes_.back().last_id);
    }
    /** Whether anything may be started: not behind a failure, nor past a fence. */
    Status check_startable() const {
        if (channel_.failed) {
            return Status::peer_failed;
        }
        return fence_pending() ? Status::no_resource : Status::ok;
    }

    /** Whether something is to be completed. */
    bool busy() const { return !operations_.empty() || !ended_gets_.empty() || !flushes_.empty(); }

    /** Takes the operations of one owner out, without calling their completions. */
    class Cancellation {
    public:
        /** Adds the completions to `*ended`, unless that is null. Allocates what that needs. */
        Cancellation(Operations &operations, const void *owner, std::vector<Completion> *ended);
        const void *owner() const { return owner_; }
        bool owns(uint64_t id) const;
        void erase(uint64_t id);
        /** Takes out the rest. Data of the peer for them is dropped. */
        void finish();

    private:
        void hand_out(const Completion &completion);

        Operations &operations_;
        const void *const owner_;
        std::vector<Completion> *const ended_;
    };

    /** Ends all permissions of the peer, which may still write until WritePermissions::await(). */
    void close_permissions();
    /** Completes everything with peer_failed. */
    void fail_all();

    WrittenRanges &written() { return written_; }  // by puts that have not ended
    WrittenRanges &read() { return read_; }        // by gets that have not ended
    // From the first to the last block of each message of blocks that has not ended, gaps included.
    WrittenRanges &put_blocks() { return put_blocks_; }
    WrittenRanges &get_blocks() { return get_blocks_; }

private:
    /** A get that has read all of its data; its user is not told yet. */
    struct EndedGet {
        const void *owner;
        Completion completion;
    };

    struct PendingFlush {
        uint64_t last_id;
        const void *owner;
        Completion completion;
    };

    void complete_joined(uint64_t id, Status status);

    PeerChannel &channel_;
    WritePermissions &permissions_;
    uint64_t next_id_ = 1;
    uint64_t fence_id_ = 0;  // operations below it end before anything is sent
    WrittenRanges written_;
    WrittenRanges read_;
    WrittenRanges put_blocks_;
    WrittenRanges get_blocks_;
    std::map<uint64_t, Operation> operations_;
    std::deque<EndedGet> ended_gets_;
    std::deque<PendingFlush> flushes_;
};

}  // namespace gpushm
