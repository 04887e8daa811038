// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/peer_gpu_ring.hpp"

namespace gpushm {

/** A peer offers one. A second one is an error of the peer, which then uses neither. */
void PeerGpuRing::receive_offer(const GpuRingOffer &offer) {
    CopyEngine &engine = channel_.port.engine();
    const bool may_map = !name_ && channel_.port.config().peer_mapping &&
                         offer.buffer.can_be_mapped() && memory_.owns(offer.buffer);
    context_ = may_map ? engine.context_near(offer.device) : nullptr;
    if (context_ == nullptr) {
        forget();
        channel_.send(CellKind::gpu_ring_answer, GpuRingAnswer{0});
        return;
    }
    name_ = offer.buffer;
    memory_.ask_surely(*name_, context_);
    answer();
}

void PeerGpuRing::answer() {
    if (!name_ || mapping_) {
        return;
    }
    mapping_ = memory_.find_known(*name_, context_);
    if (mapping_ == nullptr && memory_.awaits(name_->buffer_id)) {
        return;
    }
    channel_.send(CellKind::gpu_ring_answer, GpuRingAnswer{mapping_ ? 1u : 0u});
    if (mapping_ == nullptr) {
        name_.reset();
    }
}

void PeerGpuRing::check() {
    if (mapping_ && !mapping_->alive()) {
        forget();
        channel_.send(CellKind::gpu_ring_answer, GpuRingAnswer{0});
    }
}

const unsigned char *PeerGpuRing::locate(uint64_t offset, uint64_t length) const {
    return mapping_ && mapping_->alive()
               ? mapping_->locate(*name_, name_->base + kGpuRingScale * offset, length)
               : nullptr;
}

MemoryInfo PeerGpuRing::gpu_side(const MemoryInfo &destination) const {
    MemoryInfo side = destination;
    side.kind = MemoryKind::device;
    side.context = context_;
    return side;
}

void PeerGpuRing::receive_notice(const UnmapNotice &notice) {
    if (name_ && name_->owner == notice.owner && name_->buffer_id == notice.buffer_id) {
        forget();
    }
}

void PeerGpuRing::forget() {
    mapping_.reset();
    name_.reset();
}

}  // namespace gpushm
