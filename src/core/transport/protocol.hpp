// SPDX-License-Identifier: BSD-3-Clause
// What the cells of a mailbox carry, by CellKind. All of it is written by the sender before it
// publishes the cell and read, copied and checked by the owner afterwards (Cell::state).
//
//   small message          am_inline | am_slot
//   payload from a GPU     [one DMA into the ring]  am_ring
//   put of n bytes         chunk_ring ... chunk_ring                        <- transfer_done
//   get of n bytes         get_request                  <- chunk_ring ... chunk_ring (reply)
//                                                    or <- transfer_done, when the owner has
//                                                       copied the data into the memory that the
//                                                       request names
//   many small puts        put_blocks                                       <- transfer_done
//   many small gets        get_blocks                                       <- block_data
//                                                              or, refused: <- transfer_done
//   get between hosts      help_request       both copy by CMA, see SharedTransfer
//   the first copy that    map_request                                      <- map_answer
//   is worth a mapping                                       later, perhaps <- unmap_notice
//   GPU memory is there    map_offer                           perhaps <- map_request
//   the first use of a     ring_offer                                       <- ring_answer
//   ring by a sender
//   long transfers between gpu_ring_offer   map_request, map_answer         <- gpu_ring_answer
//   GPUs through the ring
//
// Chunks go through slots instead (chunk_slot) when the peer refused the ring.
#pragma once

#include "core/memory/buffer_key.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/shared_transfer.hpp"
#include "core/shm/staging_ring.hpp"

#include <cstdint>

namespace gpushm {

/** Bytes of every slot; the same in all processes of one protocol version, so that a sender knows
 * how much it may send before it has seen the peer: 32 KiB, and the header that UCP adds
 * (doc/decisions/slot-size.md). */
constexpr uint64_t kSlotBytes = (32u << 10) + 128;

struct RingOffer {
    Cookie cookie;
    int32_t segment_fd;  // in the process of the sender
};

struct RingAnswer {
    uint32_t accepted;  // 1: the ring may be used; 0: the receiver could not map it
};

/** Bytes of the GPU ring for each byte of the staging ring. */
constexpr uint64_t kGpuRingScale = 4;

/** Memory of a GPU of the sender, kGpuRingScale times as long as its staging ring. The sender frees
 * it when the connection ends, or after an answer that refuses it. It ends with its context, too.
 */
struct GpuRingOffer {
    BufferKey buffer;  // may be mapped
    uint64_t device;   // device_identity() of the GPU to whose memory the transfers go
};

struct GpuRingAnswer {
    uint32_t accepted;  // 1: chunks may lie there; 0: not, or not any more
};

/** A part of a transfer; its data is a span of the ring (chunk_ring) or the slot (chunk_slot). */
struct TransferChunk {
    uint64_t transfer_id;   // unique in the process that started the transfer, on this connection
    uint64_t offset;        // where the data belongs, from the start of the transfer, in bytes
    uint64_t total;         // bytes of the whole transfer
    uint64_t address;       // put: start of the transfer in the receiver's memory
    uint64_t registration;  // put: RegistrationTable id in the receiver
    RingSpan span;          // chunk_ring
    uint64_t length;        // chunk_ring: bytes of the data
    uint32_t is_reply;      // 1: data of a get that the receiver asked for; 0: of a put
    uint32_t failed;        // 1: the data could not be read; the bytes count, but are not written
    uint32_t in_gpu_ring;   // 1: the data lies in the GPU ring, kGpuRingScale times as far from its
                            // beginning as the span; 0: in the span, which is as long
};
static_assert(sizeof(TransferChunk) <= Cell::kInlineBytes, "a chunk's description fits its cell");

struct GetRequest {
    uint64_t transfer_id;
    uint64_t address;  // in the receiver's memory
    uint64_t length;   // bytes, > 0
    uint64_t registration;
    uint64_t destination;  // address in the sender's memory
    BufferKey buffer;      // where `destination` lies
    SharedUse shared;  // of one piece, in the sender's mailbox: permits the receiver of the request
                       // to write there
    uint64_t speculative_copy;  // 0, or its number, which came with the message (SpeculativeCopies)
};
static_assert(sizeof(GetRequest) <= Cell::kInlineBytes, "a request fits its cell");

/** Asks for help with a get whose pieces the sender reads itself: the receiver writes pieces of its
 * own memory into the sender's. */
struct HelpRequest {
    uint64_t address;  // of the data, in the receiver's memory
    uint64_t length;   // bytes, > 0
    uint64_t registration;
    uint64_t destination;  // in the sender's memory
    uint64_t piece_bytes;
    SharedUse shared;   // in the sender's mailbox
    uint64_t asked_at;  // ns of CLOCK_MONOTONIC
};
static_assert(sizeof(HelpRequest) <= Cell::kInlineBytes, "a request fits its cell");

/** A little GPU memory that the sender keeps: the receiver may map it to keep its access to that
 * GPU (IpcMappingCache::keeps_access()). */
struct MapOffer {
    BufferKey buffer;
};

/** Map requests of one process that are not answered, or whose handles it has not opened: as many
 * as it keeps mapped (IpcMappingCache). A peer that sends more is broken. */
constexpr size_t kMaxMapRequests = 128;

/** Asks for a handle of an allocation of the receiver. */
struct MapRequest {
    BufferKey buffer;
};

/** A descriptor comes through DescriptorReceiver, with the owner and the buffer id as tag, before
 * this. */
struct MapAnswer {
    uint64_t owner;
    uint64_t buffer_id;
    BufferKey::Sharing sharing;  // none: the owner does not give a handle
    unsigned char ipc_handle[CU_IPC_HANDLE_SIZE];
};
static_assert(sizeof(MapAnswer) <= Cell::kInlineBytes, "an answer fits its cell");

/** The sender freed memory that it gave a handle of, or has given handles of too many since; the
 * mapping should go. */
struct UnmapNotice {
    uint64_t owner;
    uint64_t buffer_id;
};

/** Blocks of one message of put_blocks or get_blocks, at most: as many as one launch of a kernel
 * copies. */
constexpr size_t kMaxBlocks = 1024;

/** Messages of get_blocks that a process may have under way on a connection. The owner keeps
 * answers that find no room in the mailbox; a peer that asks for more is broken. */
constexpr size_t kMaxBlockRequests = 8;

/** Small puts (put_blocks) or small gets (get_blocks) of one registration. The slot has a Block for
 * each. Behind them it has the data of puts, one block after the other. A later put prevails where
 * they overlap. */
struct BlockMessage {
    uint64_t transfer_id;   // of all together
    uint64_t registration;  // RegistrationTable id in the receiver
    uint64_t count;         // at most kMaxBlocks
};

struct Block {
    uint64_t address;  // in the receiver's memory
    uint64_t length;   // bytes, > 0; of all blocks together at most kSlotBytes
};
static_assert(kMaxBlocks * sizeof(Block) < kSlotBytes, "the slot has room for all blocks");

/** The slot has what get_blocks asked for, one block after the other. */
struct BlockData {
    uint64_t transfer_id;
};

struct TransferDone {
    uint64_t transfer_id;
    uint32_t failed;  // 1: some of the data was not written
};

}  // namespace gpushm
