// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/gpu_ring.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/mapping/shareable_memory.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/standby/gpu_sharing.hpp"

#include <unistd.h>

namespace gpushm {
namespace {

// Bytes. Shorter transfers arrive as soon through host memory (doc/decisions/gpu-ring.md).
constexpr uint64_t kSmallestTransfer = 256u << 10;

// Bytes of such transfers that go through host memory before the ring is made. They take half as
// much longer as it takes to allocate and map a ring; most programs send as much again.
constexpr uint64_t kWorthARing = 16u << 20;

/** Whether no other process uses the GPU: copies within it would wait for the others' kernels. */
bool has_for_itself(CUdevice device) {
    return GpuSharing::instance().others(device) == GpuSharing::Others::none;
}

}  // namespace

/** Host memory carries what goes to the same GPU: copies within a GPU that two processes share wait
 * for each other (doc/design/sharing-a-gpu.md). */
bool GpuRing::suits(const ChunkedTransfer &transfer) {
    const BufferKey &destination = transfer.remote.buffer;
    return transfer.by_gpu && transfer.total >= kSmallestTransfer &&
           transfer.source_info.needs_gpu() && destination.device != 0 &&
           !destination.cpu_copies() &&
           device_identity(transfer.source_info.device) != destination.device;
}

void GpuRing::count(const ChunkedTransfer &transfer, size_t length) {
    if (state_ == State::none && suits(transfer)) {
        through_host_ += length;
    }
}

void GpuRing::make_if_due(const ChunkedTransfer &transfer, size_t ring_bytes) {
    if (state_ != State::none || through_host_ < kWorthARing || !suits(transfer) ||
        !has_for_itself(transfer.source_info.device)) {
        return;
    }
    const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
    if (!alive) {
        return;  // later
    }
    state_ = State::refused;
    const bool may_be_mapped = channel_.port.config().peer_mapping && channel_.peer.pid != getpid();
    const CUcontext context =
        may_be_mapped ? channel_.port.engine().context_of(transfer.source_info) : nullptr;
    if (context == nullptr) {
        return;
    }
    context_ = {context, CudaDriver::get()->context_id(context)};
    memory_ = allocate_shareable(context_, kGpuRingScale * ring_bytes);
    if (memory_) {
        state_ = State::offered;
        device_ = transfer.source_info.device;
        exports_.keep(memory_->buffer_id);
        destination_ = transfer.remote.buffer.device;
        channel_.send(CellKind::gpu_ring_offer, GpuRingOffer{*memory_, destination_});
    }
}

void GpuRing::receive_answer(const GpuRingAnswer &answer) {
    if (answer.accepted == 0) {
        state_ = State::refused;
    } else if (state_ == State::offered) {
        state_ = State::ready;
        GPUSHM_LOG(debug, "%llu bytes of GPU memory carry long messages to process %d",
                   static_cast<unsigned long long>(memory_->length), channel_.peer.pid);
    }
}

size_t GpuRing::shortest() const {
    return state_ == State::ready && has_for_itself(device_) ? kSmallestTransfer : SIZE_MAX;
}

bool GpuRing::is_for(const ChunkedTransfer &transfer) const {
    return state_ == State::ready && suits(transfer) &&
           transfer.remote.buffer.device == destination_ &&
           transfer.source_info.device == device_ && has_for_itself(device_);
}

bool GpuRing::takes(const ChunkedTransfer &transfer, const unsigned char *source, size_t length) {
    if (!CudaDriver::get()->context_is_alive(context_.context, context_.id)) {
        drop();
        return false;
    }
    CopyEngine &engine = channel_.port.engine();
    return engine.context_of(transfer.source_info) == context_.context &&
           engine.can_copy_within_gpu(transfer.source_info, source, length);
}

unsigned char *GpuRing::at(uint64_t offset) const {
    return to_pointer(memory_->base + kGpuRingScale * offset);
}

void GpuRing::drop() {
    if (memory_) {
        free_shareable(context_, *memory_);
        memory_.reset();
    }
    state_ = State::refused;
}

}  // namespace gpushm
