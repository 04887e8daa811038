// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/peer_gpu_ring.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/mapping/ipc_mapping_cache.hpp"

namespace gpushm {

/** A peer offers one. A second one is an error of the peer, which then uses neither. */
void PeerGpuRing::receive_offer(const GpuRingOffer &offer) {
    const bool may_map =
        !name_ && CudaDriver::get() != nullptr && channel_.port.config().peer_mapping &&
        offer.buffer.sharing == BufferKey::Sharing::ipc_handle && memory_.owns(offer.buffer);
    context_ = may_map ? channel_.port.engine().context_near(offer.device) : nullptr;
    if (context_ == nullptr ||
        PeerMemory::device_of({context_, CudaDriver::get()->context_id(context_)}) !=
            offer.device) {
        withdraw();
        return;
    }
    name_ = offer.buffer;
    device_ = offer.device;
    memory_.ask_surely(*name_, context_);
    answer();
}

void PeerGpuRing::withdraw() {
    forget();
    channel_.send(CellKind::gpu_ring_answer, GpuRingAnswer{0});
}

void PeerGpuRing::answer() {
    if (!name_ || mapping_) {
        return;
    }
    mapping_ = memory_.find_known(*name_, context_);
    if (mapping_ == nullptr && memory_.awaits(name_->buffer_id)) {
        return;
    }
    channel_.maps_gpu_ring = mapping_ != nullptr;
    channel_.send(CellKind::gpu_ring_answer, GpuRingAnswer{mapping_ ? 1u : 0u});
    if (mapping_ == nullptr) {
        name_.reset();
    }
}

void PeerGpuRing::check_mapping() {
    const uint64_t generation = IpcMappingCache::instance().generation();
    if (generation != generation_ && !mapping_->alive()) {
        withdraw();
    }
    generation_ = generation;
}

const unsigned char *PeerGpuRing::locate(uint64_t offset, uint64_t length,
                                         const MemoryInfo &destination) const {
    const bool is_usable = mapping_ && destination.needs_gpu() &&
                           device_identity(destination.device) == device_ && mapping_->alive();
    return is_usable ? mapping_->locate(*name_, name_->base + kGpuRingScale * offset, length)
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
        withdraw();
    }
}

void PeerGpuRing::forget() {
    channel_.maps_gpu_ring = false;
    mapping_.reset();
    name_.reset();
}

}  // namespace gpushm
