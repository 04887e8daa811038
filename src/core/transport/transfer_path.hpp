// SPDX-License-Identifier: BSD-3-Clause
// Which path the bytes of a transfer take, and who copies them.
//
//   path       what                                    who copies
//   read_now   get between hosts, short                this process, by CMA, within the call
//   host_read  get between hosts                       this process by CMA, with help of the peer
//   copied     reply, whose copy began before          GPU or CPU of this process into the ring,
//              the peer asked (SpeculativeCopies)      the peer from there
//   direct     one side is GPU memory, and the         a GPU of this process, once
//              peer's memory is mapped here
//   wait       as direct; the mapping is asked for     this process, when the mapping is made
//              and the ring would be later
//   request    get of anything else                    the peer: it answers by a reply
//   ring       put and reply of anything else          GPU or CPU of both, through the ring; or the
//                                                      CPUs through slots, without a ring
//
// Who copies by a direct path:
//
//   device -> device, two GPUs   the receiver pulls (get), or the sender pushes (put)
//   device -> device, one GPU    one process does every copy of the pair (it pulls, or pushes when
//                                asked), because kernels of two processes wait for time slices of
//                                the GPU; none, while a third process has the claim of the GPU
//                                (GpuSharing). Where the programs of both launch kernels: the one
//                                that has the GPU (GpuTurn), or none
//   device -> host               the receiver pulls, if its memory is page-locked
//   host -> device               the sender pushes when asked, if its memory is page-locked
//
// Every message goes through the ring until a mapping and page-locking pay (IpcMappingCache,
// HostRegistrationCache), and so does every copy that fails.
#pragma once

#include "core/transport/direct_transfers.hpp"
#include "core/transport/host_reads.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/outgoing_span.hpp"
#include "core/transport/peer_memory.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/ring_receiver.hpp"
#include "core/transport/ring_sender.hpp"
#include "core/transport/transfer_types.hpp"

#include <cstdint>
#include <optional>

namespace gpushm {

/** In the order in which they are tried. */
enum class TransferPath : uint8_t { read_now, host_read, copied, direct, wait, request, ring };

/** What a choice depends on, beside the transfer. */
struct PathQuery {
    bool is_new;           // the transfer has not waited for a mapping
    bool awaited = false;  // other transfers wait for the mapping of its buffer
    /** The path that was chosen before and could not be taken: only later ones are tried. */
    std::optional<TransferPath> failed = std::nullopt;
};

struct PathChoice {
    TransferPath path;
    std::optional<DirectTransfers::Plan> plan = std::nullopt;  // direct
    OutgoingSpan *copied = nullptr;  // an answer; with another path it is of no use
    std::optional<ChunkedTransfer> reply = std::nullopt;  // of direct and ring, for an answer
    /** Of an answer: the path when the plan cannot be started. */
    TransferPath path_without_plan = TransferPath::ring;
};

/** What the choice depends on. */
struct PathParts {
    HostReads &host_reads;
    DirectTransfers &direct;
    PeerMemory &memory;
    RingSender &sender;
    RingReceiver &receiver;
};

// Ask the peer for a mapping, and page-lock host memory, where that pays.
PathChoice choose_path(PathParts &parts, const Operation &get, const PathQuery &query);
PathChoice choose_path(PathParts &parts, const ChunkedTransfer &put, const PathQuery &query);
/** Of the answer to the peer. */
PathChoice choose_path(PathParts &parts, const GetRequest &request);

}  // namespace gpushm
