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
    /** Takes back an answer if the mapping has ended with its context. Before anything is sent by
     * which the peer learns of memory of this process: what it sends to that does not lie in the
     * GPU ring then. Two loads as long as no context ends. */
    void check() {
        if (mapping_ != nullptr) {
            check_mapping();
        }
    }

    /** Where the data of a span at that offset of the staging ring lies, for a copy to
     * `destination`; null: the GPU ring is not mapped, or not so long, or it is mapped for another
     * GPU. */
    const unsigned char *locate(uint64_t offset, uint64_t length,
                                const MemoryInfo &destination) const;
    /** Keeps what locate() returned. */
    const std::shared_ptr<PeerMapping> &mapping() const { return mapping_; }
    /** For a copy from there: what `destination`, which needs a GPU, is. */
    MemoryInfo gpu_side(const MemoryInfo &destination) const;

    /** The peer must not use it any more, if the memory is that of the ring. */
    void receive_notice(const UnmapNotice &notice);
    /** The peer uses it no more. */
    void forget();

private:
    void check_mapping();
    void withdraw();

    PeerChannel &channel_;
    PeerMemory &memory_;
    std::optional<BufferKey> name_;  // what the peer offered, until it is refused
    CUcontext context_ = nullptr;    // of the mapping
    uint64_t device_ = 0;            // device_identity() of its GPU
    uint64_t generation_ = 0;        // of IpcMappingCache, when the mapping was seen alive
    std::shared_ptr<PeerMapping> mapping_;
};

}  // namespace gpushm
