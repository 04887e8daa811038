// SPDX-License-Identifier: BSD-3-Clause
// The GPU ring: GPU memory of the sender behind the spans of its staging ring.
//
// Memory that no process can map (managed, of a pool), or that is not mapped yet, goes from GPU to
// GPU through it at the speed of the link between the GPUs, which is several times the speed of
// host memory:
//
//   sender                                     receiver (PeerGpuRing)
//   allocates it                  gpu_ring_offer ->
//                                             <-  map_request, map_answer
//   from now on                               <-  gpu_ring_answer
//   copies a chunk within its GPU      chunk_ring ->
//                                                 copies it from GPU to GPU
//
// A span of the staging ring stands for kGpuRingScale times as many bytes of the GPU ring, at
// kGpuRingScale times the distance from its beginning, and only one of both is used. So the order
// of spans, and who may use one, are as RingHeader says.
#pragma once

#include "core/base/immovable.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/reclaim/context_in_use.hpp"
#include "core/transport/exported_memory.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/transfer_types.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** The sender's side. One thread at a time. */
class GpuRing : Immovable {
public:
    GpuRing(PeerChannel &channel, ExportedMemory &exports) : channel_(channel), exports_(exports) {}

    /** So many bytes of the transfer go through host memory. */
    void count(const ChunkedTransfer &transfer, size_t length);
    /** Allocates and offers memory for a ring of `ring_bytes` bytes if that pays, judged by what
     * went through host memory, for transfers between the GPUs of `transfer`. Once for a
     * connection. */
    void make_if_due(const ChunkedTransfer &transfer, size_t ring_bytes);
    /** After a refusal nothing is copied into it any more. */
    void receive_answer(const GpuRingAnswer &answer);
    /** Whether drop() is due once no copy into it is under way. */
    bool is_given_up() const { return state_ == State::refused && memory_.has_value(); }

    /** Bytes of the shortest transfer between GPUs that takes it; none: SIZE_MAX. */
    size_t shortest() const;
    /** Whether chunks of the transfer are to be copied into it. Does not ask the driver. */
    bool is_for(const ChunkedTransfer &transfer) const;
    /** Whether that is possible for `length` bytes of it at `source`, which the driver is asked.
     * is_for() has been true. */
    bool takes(const ChunkedTransfer &transfer, const unsigned char *source, size_t length);
    /** What a span at that offset of the staging ring stands for. takes() has been true. */
    unsigned char *at(uint64_t offset) const;
    /** Bytes of a span that stands for so many bytes. */
    static size_t span_bytes(size_t length) { return (length - 1) / kGpuRingScale + 1; }

    /** Gives it back, for good: nothing is copied into it any more, and the peer uses nothing of
     * it. */
    void drop();

private:
    enum class State { none, offered, ready, refused };

    static bool suits(const ChunkedTransfer &transfer);

    PeerChannel &channel_;
    ExportedMemory &exports_;
    State state_ = State::none;
    uint64_t through_host_ = 0;  // bytes of transfers that it suits
    ContextInUse context_ = {};  // of its memory
    CUdevice device_ = 0;
    std::optional<BufferKey> memory_;
    uint64_t destination_ = 0;  // device_identity() of the receiver's GPU
};

}  // namespace gpushm
