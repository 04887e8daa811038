// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/control_dispatch.hpp"

#include "core/base/log.hpp"
#include "core/transport/protocol.hpp"

namespace gpushm {

void report_wrong_length(const Connection &connection) {
    GPUSHM_LOG_ONCE(error,
                    "process %d sent a control message of a wrong kind or length: the message is "
                    "dropped; look for memory corruption in the job's processes",
                    connection.peer().pid);
}

void hand_to(Connection &connection, const ReceivedCell &message) {
    // Calls `member` of `part` with the payload, and with what follows it.
    const auto give = [&](auto payload, auto &part, auto member, auto... more) {
        if (read_payload(message, &payload)) {
            (part.*member)(payload, more...);
        } else {
            report_wrong_length(connection);
        }
    };
    RingReceiver &receiver = connection.ring_receiver();
    Transfers &transfers = connection.transfers();
    switch (message.kind) {
        case CellKind::ring_offer:
            return give(RingOffer(), receiver, &RingReceiver::receive_offer);
        case CellKind::ring_answer:
            return give(RingAnswer(), connection.ring_sender(), &RingSender::receive_answer);
        case CellKind::gpu_ring_offer:
            return give(GpuRingOffer(), receiver.gpu_ring(), &PeerGpuRing::receive_offer);
        case CellKind::gpu_ring_answer:
            return give(GpuRingAnswer(), connection.ring_sender(),
                        &RingSender::receive_gpu_ring_answer);
        case CellKind::chunk_slot:
        case CellKind::chunk_ring:
            return give(TransferChunk(), receiver, &RingReceiver::receive_chunk, message.slot,
                        message.length);
        case CellKind::get_request:
            return give(GetRequest(), transfers, &Transfers::receive_get_request);
        case CellKind::transfer_done:
            return give(TransferDone(), transfers, &Transfers::receive_done);
        case CellKind::map_request:
            return give(MapRequest(), connection.exports(), &ExportedMemory::receive_request);
        case CellKind::map_answer:
            return give(MapAnswer(), transfers.memory(), &PeerMemory::receive_answer);
        case CellKind::map_offer:
            return give(MapOffer(), transfers.memory(), &PeerMemory::receive_offer);
        case CellKind::unmap_notice:
            return give(UnmapNotice(), connection, &Connection::receive_notice);
        case CellKind::help_request:
            return give(HelpRequest(), connection.helper(), &HostReadHelper::receive_request);
        case CellKind::put_blocks:
            return give(BlockMessage(), connection.peer_blocks(), &PeerBlocks::receive_puts,
                        message.slot, message.length);
        case CellKind::get_blocks:
            return give(BlockMessage(), connection.peer_blocks(), &PeerBlocks::receive_gets,
                        message.slot, message.length);
        case CellKind::block_data:
            return give(BlockData(), transfers.blocks(), &BlockTransfers::receive_data,
                        message.slot, message.length);
        case CellKind::am_inline:
        case CellKind::am_slot:
        case CellKind::am_ring:
        case CellKind::close:
            break;  // Port
    }
    report_wrong_length(connection);
}

}  // namespace gpushm
