// SPDX-License-Identifier: BSD-3-Clause
// The receiving side of a connection's staging ring: chunks of the peer's puts, and of its replies
// to gets of this process.
//
// An ahead pointer runs in front of what the peer may use again: copies start out of spans that are
// not released yet (Ji et al., IPDPSW 2012). RingSender has the other side.
#pragma once

#include "core/base/immovable.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/memory/registration_table.hpp"
#include "core/shm/staging_ring.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/peer_gpu_ring.hpp"
#include "core/transport/protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

namespace gpushm {

/** One thread at a time. */
class RingReceiver : Immovable {
public:
    RingReceiver(PeerChannel &channel, Operations &operations, PeerMemory &memory)
        : channel_(channel), operations_(operations), gpu_ring_(channel, memory) {}

    void receive_offer(const RingOffer &offer);
    bool has_ring() const { return ring_.has_value(); }
    PeerGpuRing &gpu_ring() { return gpu_ring_; }

    /** Where a message lies; null, logged, when the span is impossible. */
    unsigned char *open_span(const RingSpan &span);
    void close_span(const RingSpan &span) { ring_->close(span); }

    /** `slot`: where its data lies; null: in the ring. */
    void receive_chunk(const TransferChunk &chunk, const unsigned char *slot, size_t slot_length);

    /** Ends the copies that are complete; their number. */
    unsigned finish_copies();
    bool busy() const { return !copies_.empty(); }
    /** RegistrationUser::end_copies(). */
    void end_copies(uint64_t registration);
    /** Waits for copies to an owner's memory; for all with null. */
    void wait_for_copies(const void *owner);
    /** After wait_for_copies(): forgets what has arrived. */
    void forget() {
        copies_.clear();
        puts_.clear();
    }
    void drop_ring() {
        ring_.reset();
        gpu_ring_.forget();
    }

private:
    /** A chunk on its way out of the ring by DMA. The spans are closed in their order. */
    struct IncomingCopy {
        CopyTicket ticket;
        TransferChunk chunk;
        RegistrationTable::Use use;            // of a put
        std::shared_ptr<PeerMapping> mapping;  // of the GPU ring; null: out of the staging ring
    };

    /** A put of the peer of which not all bytes have arrived. */
    struct IncomingPut {
        uint64_t arrived = 0;  // bytes
        bool failed = false;
    };

    /** Where a chunk belongs. */
    struct Destination {
        unsigned char *address = nullptr;  // null: nobody waits for it, or it may not be written
        MemoryInfo info;
        bool on_gpu = false;
        RegistrationTable::Use use;  // a put writes while it lives
    };

    Destination destination_of(const TransferChunk &chunk, uint64_t length);
    Destination destination_of_reply(const TransferChunk &chunk, uint64_t length);
    Destination destination_of_put(const TransferChunk &chunk, uint64_t length);
    Status store_by_gpu(const TransferChunk &chunk, const unsigned char *data, uint64_t length,
                        bool from_ring, Destination &destination);
    void arrived(const TransferChunk &chunk, uint64_t length, bool stored);
    void reply_arrived(const TransferChunk &chunk, uint64_t length, bool stored);
    void put_arrived(const TransferChunk &chunk, uint64_t length, bool stored);

    PeerChannel &channel_;
    Operations &operations_;
    std::optional<StagingRingReceiver> ring_;
    PeerGpuRing gpu_ring_;
    std::deque<IncomingCopy> copies_;
    std::map<uint64_t, IncomingPut> puts_;  // by transfer id
};

}  // namespace gpushm
