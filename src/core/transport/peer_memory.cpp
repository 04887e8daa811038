// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/peer_memory.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/reclaim/context_in_use.hpp"
#include "core/reclaim/context_lifetime.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {
namespace {

// More handles are opened without waiting for what is under way: it has become long.
constexpr size_t kMaxHandles = 64;

// Bytes: through the ring they take 50 us longer (doc/decisions/mapping-waits.md). Where there is
// no ring yet all transfers wait: to make one and to page-lock it on both sides takes milliseconds,
// and a process that maps all that it meets never needs it.
constexpr uint64_t kSmallestWait = 2u << 20;

// Seconds: more than any mapping costs.
constexpr double kWorthAMapping = 1;

}  // namespace

std::optional<uint64_t> PeerMemory::device_of(const ContextInUse &in_use) {
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, in_use.context, in_use.id);
    CUdevice device = 0;
    if (current.result() != CUDA_SUCCESS || driver->ctx_get_device(&device) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    return device_identity(device);
}

std::shared_ptr<PeerMapping> PeerMemory::find(const BufferKey &buffer, const Use &use) {
    // Asked anew now and then, so that what is in use stays young.
    constexpr unsigned kUses = 256;
    const uint64_t generation = IpcMappingCache::instance().generation();
    if (last_.generation == generation && last_.owner == buffer.owner &&
        last_.buffer_id == buffer.buffer_id && last_.context == use.context &&
        ++last_.uses < kUses) {
        if (std::shared_ptr<PeerMapping> mapping = last_.mapping.lock()) {
            return mapping;
        }
    }
    std::shared_ptr<PeerMapping> mapping = IpcMappingCache::instance().find(buffer, use.context);
    last_ = {generation, buffer.owner, buffer.buffer_id, use.context, mapping, 0};
    if (mapping == nullptr && use.is_new && requested_.size() + handles_.size() < kMaxMapRequests &&
        IpcMappingCache::instance().missed(buffer, use.context, use.saved_seconds, use.ready)) {
        ask_for(buffer);
    }
    return mapping;
}

void PeerMemory::ask_surely(const BufferKey &buffer, CUcontext context) {
    find(buffer, {context, kWorthAMapping, true, true});
}

std::shared_ptr<PeerMapping> PeerMemory::find_known(const BufferKey &buffer, CUcontext context) {
    return find(buffer, {context, 0, true, false});
}

bool PeerMemory::awaits(uint64_t buffer_id) const {
    return std::find(requested_.begin(), requested_.end(), buffer_id) != requested_.end() ||
           std::any_of(handles_.begin(), handles_.end(),
                       [&](const Handle &handle) { return handle.buffer_id == buffer_id; });
}

void PeerMemory::ask_for(const BufferKey &buffer) {
    if (buffer.sharing == BufferKey::Sharing::file_descriptor &&
        !channel_.port.descriptors().open(channel_.port.address().cookie)) {
        IpcMappingCache::instance().receive(buffer.owner, buffer.buffer_id, nullptr);
        return;
    }
    requested_.push_back(buffer.buffer_id);
    channel_.send(CellKind::map_request, MapRequest{buffer});
    asked_for_ = buffer.buffer_id;
}

bool PeerMemory::owns(const BufferKey &buffer) {
    const int pid = channel_.peer.pid;
    const bool named_us = buffer.owner == process_cookie().low && pid != getpid();
    if (owner_ == 0 && buffer.owner != 0 && !named_us &&
        IpcMappingCache::instance().belongs_to(buffer.owner, pid)) {
        owner_ = buffer.owner;
    }
    const bool is_known = buffer.owner == owner_;
    if (!is_known) {
        GPUSHM_LOG_ONCE(error,
                        "process %d names memory of another process as its own: the memory is not "
                        "mapped; look for memory corruption in the job's processes",
                        pid);
    }
    return is_known;
}

bool PeerMemory::is_worth_waiting(const BufferKey &buffer, uint64_t length, bool has_ring,
                                  bool awaited) const {
    return (asked_for_ == buffer.buffer_id || awaited) && buffer.buffer_id != 0 &&
           (length >= kSmallestWait || !has_ring);
}

/** Whether the peer was asked for the buffer; each request may be answered once. */
bool PeerMemory::take_request(uint64_t owner, uint64_t buffer_id) {
    const auto request = std::find(requested_.begin(), requested_.end(), buffer_id);
    if (owner != owner_ || request == requested_.end()) {
        return false;
    }
    requested_.erase(request);
    return true;
}

void PeerMemory::receive_answer(const MapAnswer &answer) {
    if (!take_request(answer.owner, answer.buffer_id)) {
        GPUSHM_LOG_ONCE(error,
                        "process %d sent a handle of GPU memory that it was not asked for: the "
                        "memory is not mapped; look for memory corruption in the job's processes",
                        channel_.peer.pid);
        return;
    }
    Handle given = {
        answer.buffer_id, false, {answer.sharing, {}, UniqueFd()}, operations_.next_id()};
    memcpy(&given.handle.ipc, answer.ipc_handle, sizeof(given.handle.ipc));
    if (answer.sharing == BufferKey::Sharing::file_descriptor) {
        given.handle.descriptor =
            channel_.port.descriptors().receive({answer.owner, answer.buffer_id});
    }
    given.usable = answer.sharing == BufferKey::Sharing::ipc_handle || given.handle.descriptor;
    handles_.push_back(std::move(given));
    channel_.activate();
}

/** Whether what was under way when the first handle came has ended: nothing waits for the driver
 * then, and a peer that does likewise, as most programs exchange messages, opens this process's
 * meanwhile. */
bool PeerMemory::may_open(bool held) const {
    return held || handles_.size() > kMaxHandles ||
           operations_.all_ended_before(handles_.front().next_id);
}

PeerMemory::Opened PeerMemory::open_handle(bool held) {
    if (handles_.empty() || !may_open(held)) {
        return {0, 0};
    }
    const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
    if (!alive) {  // later: the end of a context may take long
        return {0, handles_.front().buffer_id};
    }
    const Handle given = std::move(handles_.front());
    handles_.pop_front();
    IpcMappingCache::instance().receive(owner_, given.buffer_id,
                                        given.usable ? &given.handle : nullptr);
    return {1, given.buffer_id};
}

bool PeerMemory::wants_offered() const {
    if (!offered_) {
        return false;
    }
    const std::optional<ContextInUse> in_use = context_in_use();
    return in_use && !IpcMappingCache::instance().keeps_access(in_use->id, offered_->device);
}

void PeerMemory::map_offered() {
    const std::optional<ContextInUse> in_use = context_in_use();
    const std::optional<uint64_t> device = in_use ? device_of(*in_use) : std::nullopt;
    if (!device) {
        return;
    }
    const BufferKey buffer = *offered_;
    if (!buffer.can_be_mapped() || buffer.device == *device || !owns(buffer) ||
        !IpcMappingCache::instance().keep_access(buffer, in_use->context, in_use->id)) {
        offered_.reset();
        return;
    }
    ask_surely(buffer, in_use->context);
}

void PeerMemory::receive_notice(const UnmapNotice &notice) {
    if (notice.owner == owner_) {
        if (offered_ && offered_->buffer_id == notice.buffer_id) {
            offered_.reset();
        }
        IpcMappingCache::instance().forget_buffer(notice.owner, notice.buffer_id);
        channel_.port.keep_house_soon();
    }
}

void PeerMemory::forget() {
    offered_.reset();
    requested_.clear();
    handles_.clear();
    if (owner_ != 0) {
        as_possible([this] { IpcMappingCache::instance().forget_process(owner_); });
    }
}

}  // namespace gpushm
