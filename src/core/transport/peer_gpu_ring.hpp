// SPDX-License-Identifier: BSD-3-Clause
// The receiver's side of a GPU ring (gpu_ring.hpp).
#pragma once

#include "core/base/immovable.hpp"
#include "core/mapping/peer_mapping.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/memory_info.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/peer_memory.hpp"
#include "core/transport/protocol.hpp"

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace gpushm {

/** One thread at a time. */
class PeerGpuRing : Immovable {
public:
    PeerGpuRing(PeerChannel &channel, PeerMemory &memory) : channel_(channel), memory_(memory) {}

    /** Asks for the handle. */
    void receive_offer(const GpuRingOffer &offer);
    /** Answers the offer when it is known whether the memory could be mapped. */
    void answer();
    /** Takes back an answer if the mapping has ended with its context; at most one driver call.
     * What the peer sends behind the call that follows does not lie in the GPU ring. */
    void check();

    /** Where the data of a span at that offset of the staging ring lies; null: the GPU ring is not
     * mapped, or not so long. */
    const unsigned char *locate(uint64_t offset, uint64_t length) const;
    /** For a copy from there: what `destination`, which needs a GPU, is. */
    MemoryInfo gpu_side(const MemoryInfo &destination) const;

    void receive_notice(const UnmapNotice &notice);
    /** The peer uses it no more, and no copy does. */
    void forget();

private:
    PeerChannel &channel_;
    PeerMemory &memory_;
    std::optional<BufferKey> name_;  // what the peer offered, until it is refused
    CUcontext context_ = nullptr;    // of the mapping
    std::shared_ptr<PeerMapping> mapping_;
};

}  // namespace gpushm
