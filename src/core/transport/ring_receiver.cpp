// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/ring_receiver.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/memory_query.hpp"
#include "core/transport/joint_copies.hpp"

#include <cstring>
#include <utility>

namespace gpushm {
namespace {

// Puts of one peer that can be incomplete at once; more means that its words make no sense.
constexpr size_t kMaxIncomingPuts = 1u << 16;

}  // namespace

// ---------------------------------------------------------------- the ring

void RingReceiver::receive_offer(const RingOffer &offer) {
    const int pid = channel_.peer.pid;
    if (ring_) {
        GPUSHM_LOG(error,
                   "process %d offered a second ring: the ring is refused; look for memory "
                   "corruption in the job's processes",
                   pid);
        channel_.send(CellKind::ring_answer, RingAnswer{0});  // it would wait for ever
        return;
    }
    const char *why = "";
    ring_ = StagingRingReceiver::attach(pid, offer.segment_fd, offer.cookie, &why);
    if (!ring_) {
        GPUSHM_LOG(warn,
                   "cannot map the staging ring of process %d (%s): its messages come more slowly",
                   pid, why);
    }
    channel_.send(CellKind::ring_answer, RingAnswer{ring_ ? 1u : 0u});
}

unsigned char *RingReceiver::open_span(const RingSpan &span) {
    unsigned char *data = ring_ ? ring_->open(span) : nullptr;
    if (data == nullptr) {
        GPUSHM_LOG(error,
                   "process %d sent an impossible span of its staging ring: a message is dropped; "
                   "look for memory corruption in the job's processes",
                   channel_.peer.pid);
    }
    return data;
}

// ---------------------------------------------------------------- a chunk

void RingReceiver::receive_chunk(const TransferChunk &chunk, const unsigned char *slot,
                                 size_t slot_length) {
    const bool from_ring = slot == nullptr;
    const unsigned char *data = from_ring ? open_span(chunk.span) : slot;
    if (data == nullptr) {
        return;
    }
    const uint64_t length = from_ring ? chunk.length : slot_length;
    Destination destination = destination_of(chunk, length);
    if (from_ring && chunk.in_gpu_ring != 0) {
        data = gpu_ring_.locate(ring_->offset(chunk.span), length, destination.info);
        destination.on_gpu = true;  // even if its pages have moved to the CPU
    } else if (from_ring && length != chunk.span.length) {
        data = nullptr;
    }
    bool stored = destination.address != nullptr && data != nullptr;
    if (stored && destination.on_gpu) {
        const Status status = store_by_gpu(chunk, data, length, from_ring, destination);
        if (status == Status::in_progress) {
            return;
        }
        stored = status == Status::ok;
    } else if (stored) {
        memcpy(destination.address, data, length);
    }
    if (from_ring) {
        ring_->close(chunk.span);
    }
    arrived(chunk, length, stored);
}

RingReceiver::Destination RingReceiver::destination_of(const TransferChunk &chunk,
                                                       uint64_t length) {
    if (length > chunk.total || chunk.offset > chunk.total - length || chunk.failed != 0) {
        return Destination();
    }
    return chunk.is_reply != 0 ? destination_of_reply(chunk, length)
                               : destination_of_put(chunk, length);
}

RingReceiver::Destination RingReceiver::destination_of_reply(const TransferChunk &chunk,
                                                             uint64_t length) {
    Destination result;
    const Operation *operation = operations_.find(chunk.transfer_id);
    if (operation == nullptr || !operation->is_get() || operation->length != chunk.total) {
        return result;
    }
    result.info = operation->local_info;
    result.address = operation->local + chunk.offset;
    // For managed memory get() has found this; to ask again costs a system call.
    result.on_gpu = length == chunk.total ? operation->local_on_gpu
                                          : gpu_copies(result.info, result.address, length);
    return result;
}

RingReceiver::Destination RingReceiver::destination_of_put(const TransferChunk &chunk,
                                                           uint64_t length) {
    Destination result;
    result.use = RegistrationTable::instance().use(chunk.registration, chunk.address, chunk.total);
    if (!result.use) {
        const auto known = puts_.find(chunk.transfer_id);
        if (known == puts_.end() || !known->second.failed) {
            GPUSHM_LOG(
                debug,
                "process %d wants to write %llu bytes that are not registered for it: refused",
                channel_.peer.pid, static_cast<unsigned long long>(chunk.total));
        }
        return result;
    }
    result.address = to_pointer(chunk.address + chunk.offset);
    result.info = query_memory(result.address);
    result.on_gpu = gpu_copies(result.info, result.address, length);
    return result;
}

/** in_progress: finish_copies() ends the copy. */
Status RingReceiver::store_by_gpu(const TransferChunk &chunk, const unsigned char *data,
                                  uint64_t length, bool from_ring, Destination &destination) {
    CopyEngine &engine = channel_.port.engine();
    const bool from_gpu = from_ring && chunk.in_gpu_ring != 0;
    const MemoryInfo gpu_side = from_gpu ? gpu_ring_.gpu_side(destination.info) : destination.info;
    CopyJob job = {destination.address, data, length, gpu_side, CopyDirection::to_gpu};
    job.other_side = from_gpu ? OtherSide::elsewhere : OtherSide::unknown;
    job.urgent = chunk.is_reply != 0 && operations_.size() == 1;
    job.transfer_bytes = chunk.total;
    job.joint_bytes = joint_bytes_of_chunk(length, chunk.total, destination.info);
    if (!from_ring) {
        CopyTicket ticket;
        const Status status = engine.start(job, &ticket);
        return status == Status::in_progress ? engine.wait(&ticket) : status;
    }
    // Before a copy begins.
    copies_.push_back(
        {{}, chunk, std::move(destination.use), from_gpu ? gpu_ring_.mapping() : nullptr});
    const Status status = engine.start(job, &copies_.back().ticket);
    if (status != Status::in_progress) {
        copies_.pop_back();
        return status;
    }
    if (chunk.is_reply != 0) {
        operations_.count_part(chunk.transfer_id, 1);
    }
    channel_.activate();
    return status;
}

unsigned RingReceiver::finish_copies() {
    unsigned count = 0;
    while (!copies_.empty()) {
        IncomingCopy &front = copies_.front();
        const Status status = channel_.port.engine().poll(&front.ticket);
        if (status == Status::in_progress) {
            break;
        }
        const TransferChunk chunk = front.chunk;
        copies_.pop_front();
        if (chunk.is_reply != 0) {
            operations_.count_part(chunk.transfer_id, -1);
        }
        ring_->close(chunk.span);
        arrived(chunk, chunk.length, status == Status::ok && chunk.failed == 0);
        ++count;
    }
    return count;
}

void RingReceiver::arrived(const TransferChunk &chunk, uint64_t length, bool stored) {
    if (chunk.is_reply != 0) {
        reply_arrived(chunk, length, stored);
    } else {
        put_arrived(chunk, length, stored);
    }
}

void RingReceiver::reply_arrived(const TransferChunk &chunk, uint64_t length, bool stored) {
    Operation *operation = operations_.find(chunk.transfer_id);
    if (operation == nullptr || !operation->is_get()) {
        return;
    }
    operation->failed |= !stored;
    operation->arrived += length;
    if (operation->arrived < operation->length) {
        return;
    }
    if (operation->parts != 0) {
        channel_.give_up_broken_transfer();
        return;
    }
    operations_.end(chunk.transfer_id, operation->failed ? Status::gpu_error : Status::ok);
}

void RingReceiver::put_arrived(const TransferChunk &chunk, uint64_t length, bool stored) {
    // The puts of a peer come one after the other: the rest of an older one that is not complete by
    // now was cancelled.
    if (copies_.empty()) {
        puts_.erase(puts_.begin(), puts_.lower_bound(chunk.transfer_id));
    }
    if (chunk.transfer_id == 0 || puts_.size() >= kMaxIncomingPuts) {
        return;
    }
    IncomingPut &incoming = puts_[chunk.transfer_id];
    incoming.failed |= !stored;
    incoming.arrived += length;
    if (incoming.arrived >= chunk.total) {
        channel_.send(CellKind::transfer_done,
                      TransferDone{chunk.transfer_id, incoming.failed ? 1u : 0u});
        puts_.erase(chunk.transfer_id);
    }
}

// ---------------------------------------------------------------- the end

void RingReceiver::end_copies(uint64_t registration) {
    for (IncomingCopy &copy : copies_) {
        if (copy.chunk.is_reply == 0 && copy.chunk.registration == registration) {
            copy.chunk.failed |= channel_.port.engine().wait(&copy.ticket) != Status::ok ? 1u : 0u;
            copy.use.reset();
        }
    }
}

void RingReceiver::wait_for_copies(const void *owner) {
    for (IncomingCopy &copy : copies_) {
        const Operation *operation = operations_.find(copy.chunk.transfer_id);
        const bool owned =
            copy.chunk.is_reply != 0 && operation != nullptr && operation->owner == owner;
        if ((owner == nullptr || owned) &&
            channel_.port.engine().wait(&copy.ticket) != Status::ok) {
            copy.chunk.failed = 1;
        }
    }
}

}  // namespace gpushm
