// SPDX-License-Identifier: BSD-3-Clause
// Active messages of a connection.
//
//   host memory                  into a cell of the peer's mailbox, or into a slot
//   GPU memory                   into a span of the ring, by a GPU (RingSender)
//   GPU memory, without a ring   gathered in this process, then as host memory
#pragma once

#include "core/base/immovable.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_sender.hpp"
#include "core/transport/direct_transfers.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/ring_sender.hpp"
#include "core/transport/transfer_types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

namespace gpushm {

/** One thread at a time. */
class MessageSender : Immovable {
public:
    MessageSender(PeerChannel &channel, Operations &operations, RingSender &ring,
                  const DirectTransfers &direct)
        : channel_(channel), operations_(operations), ring_(ring), direct_(direct) {}

    // Connection says what these do.
    Status send_short(uint8_t am_id, uint64_t header, const void *payload, size_t length);
    Status send_short_pieces(uint8_t am_id, const Piece *pieces, size_t piece_count);
    using Pack = size_t (*)(void *destination, void *argument);
    Status send_packed(uint8_t am_id, Pack pack, void *argument, size_t *packed_length);
    Status send_pieces(uint8_t am_id, const void *header, size_t header_length, const Piece *pieces,
                       size_t piece_count, const void *owner, const Completion &completion);

    /** The sender whose `pack` runs in this thread; null: none. UCP packs memory keys into its
     * messages, and UCT's md_mkey_pack, which makes them, is not told for which endpoint (UCX
     * src/uct/api/uct.h): so the thread tells. */
    static MessageSender *packing();
    /** For packing() only: its message tells the peer of memory that the peer may get, all of it,
     * while nobody writes it. `by_gpu`: gpu_copies() of it. Returns what the get is to have as
     * RemoteMemory::speculative_copy; 0: nothing is copied. */
    uint64_t plan_speculative_copy(const void *address, size_t length, bool by_gpu);
    /** For packing() only: the argument of MessageOffer::open(). */
    const std::shared_ptr<OfferPlaces> &offer_places() const {
        return channel_.port.offer_places();
    }

private:
    /** The arguments of send_pieces(). */
    struct Message {
        uint8_t am_id;
        const void *header;
        size_t header_length;
        const Piece *pieces;
        size_t piece_count;
        size_t length;  // of all, in bytes
    };
    /** Of the pieces that a GPU copies. */
    using GpuSides = std::array<std::optional<MemoryInfo>, kMaxPieces>;

    /** Whether a message may be sent: it must not overtake those that a GPU still writes. */
    Status check_sendable() const {
        const Status status = operations_.check_startable();
        // What the control queue holds comes first: by it the peer may learn that it must not use
        // memory of this process any more (PeerGpuRing::check).
        const bool waits = ring_.has_messages() || !channel_.control.empty();
        return status == Status::ok && waits ? Status::no_resource : status;
    }
    Status send_by_ring(const Message &message, const GpuSides &gpu_sides, const void *owner,
                        const Completion &completion);
    Status send_host_pieces(const Message &message);
    Status send_gathered(const Message &message);
    bool fill(OutgoingSpan &out, const Message &message, const GpuSides &gpu_sides);

    PeerChannel &channel_;
    Operations &operations_;
    RingSender &ring_;
    const DirectTransfers &direct_;
};

/** Here, because short messages take as long as the instructions for them. */
inline Status MessageSender::send_short(uint8_t am_id, uint64_t header, const void *payload,
                                        size_t length) {
    const Status status = check_sendable();
    if (status != Status::ok) {
        return status;
    }
    if (length > Cell::kInlineBytes - sizeof(header)) {
        return Status::invalid;
    }
    ReservedCell reserved;
    if (!channel_.mailbox.reserve(&reserved, Room::cell)) {
        return Status::no_resource;
    }
    memcpy(reserved.cell->payload, &header, sizeof(header));
    if (length != 0) {  // else it may be null
        memcpy(reserved.cell->payload + sizeof(header), payload, length);
    }
    channel_.mailbox.publish(reserved, CellKind::am_inline, am_id,
                             static_cast<uint32_t>(sizeof(header) + length));
    return Status::ok;
}

}  // namespace gpushm
