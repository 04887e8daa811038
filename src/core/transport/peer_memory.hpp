// SPDX-License-Identifier: BSD-3-Clause
// GPU memory of the peer that this process maps: what it asks the peer for, and when it opens it.
//
//   process that copies                   owner (ExportedMemory)
//   message that takes another path
//   map_request                    --->   the copies that were asked for so far; then
//                                  <---   map_answer
//   what is under way ends; then
//   opens the handle                      opens its peer's handle, if it asked for one
//
// So neither process keeps a message waiting, except those that arrive sooner by the mapping
// (is_worth_waiting()).
#pragma once

#include "core/base/immovable.hpp"
#include "core/mapping/ipc_mapping_cache.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/reclaim/context_in_use.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

/** One thread at a time. */
class PeerMemory : Immovable {
public:
    PeerMemory(PeerChannel &channel, Operations &operations)
        : channel_(channel), operations_(operations) {}

    /** How a transfer would use a mapping. */
    struct Use {
        CUcontext context;     // whose GPU copies
        double saved_seconds;  // by the mapping
        bool ready;            // all that the copy needs but the mapping is there
        bool is_new;           // the transfer did not wait for a mapping
    };

    /** Whether a key that the peer has sent is of its own process; logged once if not. */
    bool owns(const BufferKey &buffer);
    /** The mapping; null when there is none (yet). Then the cost of that is counted, and the peer
     * is asked for a handle when it pays, unless that was done before for the transfer. */
    std::shared_ptr<PeerMapping> find(const BufferKey &buffer, const Use &use);
    /** The GPU of a context (device_identity()); none when the context has ended, or the driver
     * fails. */
    static std::optional<uint64_t> device_of(const ContextInUse &in_use);
    /** Asks the peer for a handle of memory whose mapping surely pays; find_known() then. */
    void ask_surely(const BufferKey &buffer, CUcontext context);
    /** The mapping; null when there is none (yet), which is not counted. */
    std::shared_ptr<PeerMapping> find_known(const BufferKey &buffer, CUcontext context);
    /** Whether the peer was asked for the buffer, and its answer has not been used. */
    bool awaits(uint64_t buffer_id) const;
    /** A transfer begins: find() asks for this transfer from now on. */
    void begin_transfer() { asked_for_ = 0; }
    /** Whether the transfer that began last has asked for the buffer, or `awaited` others wait for
     * it, and it arrives later by the ring than if it waits for the mapping. */
    bool is_worth_waiting(const BufferKey &buffer, uint64_t length, bool has_ring,
                          bool awaited) const;

    void receive_answer(const MapAnswer &answer);
    void receive_notice(const UnmapNotice &notice);
    void receive_offer(const MapOffer &offer) { offered_ = offer.buffer; }
    /** Whether memory that the peer has offered would keep this process's access to its GPU
     * (IpcMappingCache::keeps_access()), which nothing keeps yet. */
    bool wants_offered() const;
    /** Asks for that memory. wants_offered() has just been true, and the caller has a
     * ContextLifetimeLock. */
    void map_offered();

    struct Opened {
        unsigned count;      // of handles
        uint64_t buffer_id;  // whose transfers need not wait any more; 0: none
    };
    /** Opens at most one handle, so that messages are received between. `held`: some transfers
     * wait. */
    Opened open_handle(bool held);

    bool busy() const { return !handles_.empty(); }
    /** Forgets the peer's memory, and what it was asked for and has given. */
    void forget();

private:
    /** What find() returned last; keeps no mapping alive. */
    struct Last {
        uint64_t generation = 0;  // of IpcMappingCache
        uint64_t owner = 0;
        uint64_t buffer_id = 0;
        CUcontext context = nullptr;
        std::weak_ptr<PeerMapping> mapping;
        unsigned uses = 0;
    };

    /** What the peer gave of a buffer that it was asked for. It is not opened yet. */
    struct Handle {
        uint64_t buffer_id;
        bool usable;
        MappingHandle handle;
        uint64_t next_id;  // Operations::next_id() when it came
    };

    void ask_for(const BufferKey &buffer);
    bool take_request(uint64_t owner, uint64_t buffer_id);
    bool may_open(bool held) const;

    PeerChannel &channel_;
    Operations &operations_;
    uint64_t owner_ = 0;  // BufferKey::owner of the peer, once it is known
    Last last_;
    uint64_t asked_for_ = 0;           // buffer id, by the transfer that began last
    std::vector<uint64_t> requested_;  // buffer ids without an answer
    std::deque<Handle> handles_;
    std::optional<BufferKey> offered_;  // by the peer, which keeps it
};

}  // namespace gpushm
