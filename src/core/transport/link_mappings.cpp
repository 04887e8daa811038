// SPDX-License-Identifier: BSD-3-Clause
// The peer's memory mapped here, and ours there: who asks for a handle, who gives it, when it is
// opened.
//
//   peer that copies                      owner
//   message that goes another way
//   map_request                    --->   the copies that were asked for so far; then
//                                  <---   map_answer
//   what is under way ends; then
//   opens the handle                      opens that of the first one's memory, if it has asked for
//   it
//
// So neither keeps a message waiting, but for those that are sooner there by the mapping
// (is_to_wait()).
#include "core/transport/link.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/mapping/memory_export.hpp"
#include "core/reclaim/context_in_use.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/shm/descriptor_channel.hpp"
#include "core/transport/port.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

// More than a peer keeps mapped (IpcMappingCache).
constexpr size_t kMaxExports = 1024;

// That a peer has not answered, or this process has not opened. As many as it keeps mapped
// (IpcMappingCache): a buffer that is met when there are so many is asked for later. A peer that
// sends more requests than that is broken.
constexpr size_t kMaxRequests = 128;

// They are opened without waiting for what is under way: it has become long.
constexpr size_t kMaxHandles = 64;

// Bytes: through the ring they take 50 us longer. Where there is no ring yet all transfers wait: to
// make one and to page-lock it on both sides takes milliseconds, and a process that maps all that
// it meets never needs it.
constexpr uint64_t kSmallestHeld = 2u << 20;

// Seconds: more than any costs.
constexpr double kWorthAMapping = 1;

bool is_of_other_gpu(const BufferKey &buffer, const ContextInUse &in_use) {
    const CudaDriver *driver = CudaDriver::get();
    const CurrentContext current(driver, in_use.context, in_use.id);
    CUdevice device = 0;
    return current.result() == CUDA_SUCCESS && driver->ctx_get_device(&device) == CUDA_SUCCESS &&
           device_identity(device) != buffer.device;
}

}  // namespace

// ---------------------------------------------------------------- the process that copies

/** The mapping; null when there is none (yet): then it is counted what that costs, and perhaps
 * asked for one, unless that was done before for the same message (`is_new`). */
std::shared_ptr<PeerMapping> Link::find_mapping(const BufferKey &buffer, CUcontext context,
                                                double seconds, bool ready, bool is_new) {
    // Asked anew now and then, so that what is in use stays young.
    constexpr unsigned kUses = 256;
    LastMapping &last = last_mapping_;
    const uint64_t generation = IpcMappingCache::instance().generation();
    if (last.generation == generation && last.owner == buffer.owner &&
        last.buffer_id == buffer.buffer_id && last.context == context && ++last.uses < kUses) {
        if (std::shared_ptr<PeerMapping> mapping = last.mapping.lock()) {
            return mapping;
        }
    }
    std::shared_ptr<PeerMapping> mapping = IpcMappingCache::instance().find(buffer, context);
    last = {generation, buffer.owner, buffer.buffer_id, context, mapping, 0};
    if (mapping == nullptr && is_new && requested_.size() + handles_.size() < kMaxRequests &&
        IpcMappingCache::instance().missed(buffer, context, seconds, ready)) {
        if (buffer.sharing == BufferKey::Sharing::file_descriptor &&
            !port_.open_descriptor_receiver()) {
            IpcMappingCache::instance().receive(buffer.owner, buffer.buffer_id, nullptr);
            return nullptr;
        }
        requested_.push_back(buffer.buffer_id);
        send_control(CellKind::map_request, MapRequest{buffer});
        asked_for_ = buffer.buffer_id;
    }
    return mapping;
}

/** Whether a name that the peer has sent is of its own process. */
bool Link::is_of_peer(const BufferKey &buffer) {
    const bool named_us = buffer.owner == process_cookie().low && peer_.pid != getpid();
    if (owner_ == 0 && buffer.owner != 0 && !named_us &&
        IpcMappingCache::instance().belongs_to(buffer.owner, peer_.pid)) {
        owner_ = buffer.owner;
    }
    const bool is_known = buffer.owner == owner_;
    if (!is_known) {
        GPUSHM_LOG_ONCE(error,
                        "process %d names memory of another process as its own: it is not mapped; "
                        "look for memory "
                        "corruption in the job's processes",
                        peer_.pid);
    }
    return is_known;
}

/** Whether the peer was asked for the buffer; each request may be answered once. */
bool Link::take_request(uint64_t owner, uint64_t buffer_id) {
    const auto request = std::find(requested_.begin(), requested_.end(), buffer_id);
    if (owner != owner_ || request == requested_.end()) {
        return false;
    }
    requested_.erase(request);
    return true;
}

void Link::receive_map_answer(const MapAnswer &answer) {
    if (!take_request(answer.owner, answer.buffer_id)) {
        GPUSHM_LOG_ONCE(error,
                        "process %d gives GPU memory that it was not asked for: it is not mapped; "
                        "look for memory "
                        "corruption in the job's processes",
                        peer_.pid);
        return;
    }
    PeerHandle given = {answer.buffer_id, false, {answer.sharing, {}, UniqueFd()}, next_id_};
    memcpy(&given.handle.ipc, answer.ipc_handle, sizeof(given.handle.ipc));
    if (answer.sharing == BufferKey::Sharing::file_descriptor) {
        given.handle.descriptor = port_.receive_descriptor({answer.owner, answer.buffer_id});
    }
    given.usable = answer.sharing == BufferKey::Sharing::ipc_handle || given.handle.descriptor;
    handles_.push_back(std::move(given));
    port_.activate(*this);
}

/** Whether what was under way when the first handle came has ended: nothing waits for the driver
 * then, and a peer that does the same, as most programs exchange messages, opens ours meanwhile. */
bool Link::may_open_handle() const {
    return !held_transfers_.empty() || handles_.size() > kMaxHandles || operations_.empty() ||
           operations_.begin()->first >= handles_.front().next_id;
}

/** At most one, so that messages are received between. */
unsigned Link::open_handles() {
    if (handles_.empty() || !may_open_handle()) {
        return 0;
    }
    uint64_t buffer_id = 0;
    {
        const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
        if (!alive) {  // later: the end of a context may take long
            release_held(handles_.front().buffer_id);
            return 0;
        }
        const PeerHandle given = std::move(handles_.front());
        handles_.pop_front();
        buffer_id = given.buffer_id;
        IpcMappingCache::instance().receive(owner_, buffer_id,
                                            given.usable ? &given.handle : nullptr);
    }
    release_held(buffer_id);
    return 1;
}

/** Whether the mapping of a buffer was just asked for and the ring would take longer than to wait
 * for it: it is made in any case. */
bool Link::is_to_wait(const BufferKey &buffer, uint64_t length, bool has_ring) const {
    const auto waits = [&](const HeldTransfer &held) { return held.buffer_id == buffer.buffer_id; };
    const bool is_awaited = asked_for_ == buffer.buffer_id ||
                            std::any_of(held_transfers_.begin(), held_transfers_.end(), waits);
    return is_awaited && buffer.buffer_id != 0 && (length >= kSmallestHeld || !has_ring);
}

/** True: the get waits for a mapping. */
bool Link::hold_get(uint64_t id) {
    const Operation &operation = operations_[id];
    const BufferKey &buffer = operation.remote.buffer;
    const bool waits =
        operation.local_on_gpu && is_to_wait(buffer, operation.length, rx_ring_.has_value());
    if (waits) {
        held_transfers_.push_back({id, buffer.buffer_id, std::nullopt});
    }
    return waits;
}

bool Link::hold_put(const Stream &stream) {
    const BufferKey &buffer = stream.remote.buffer;
    const bool waits =
        stream.by_gpu && is_to_wait(buffer, stream.total, ring_state_ == RingState::ready);
    if (waits) {
        held_transfers_.push_back({stream.transfer_id, buffer.buffer_id, stream});
        count_part(stream.transfer_id, 1);
    }
    return waits;
}

/** The peer has answered. */
void Link::release_held(uint64_t buffer_id) {
    const auto first = std::stable_partition(
        held_transfers_.begin(), held_transfers_.end(),
        [&](const HeldTransfer &held) { return held.buffer_id != buffer_id; });
    const std::vector<HeldTransfer> ended(first, held_transfers_.end());
    held_transfers_.erase(first, held_transfers_.end());
    for (const HeldTransfer &held : ended) {
        if (operations_.count(held.id) != 0) {  // else it was given up
            release_held(held);
        }
    }
}

void Link::release_held(const HeldTransfer &held) {
    if (held.put) {
        count_part(held.id, -1);
    }
    const bool started =
        held.put ? start_direct_put(*held.put, false) : start_direct_get(held.id, false);
    if (!started && held.put) {
        add_stream(*held.put);
    } else if (!started) {
        request_data(held.id, port_.config().peer_mapping);
    }
}

void Link::receive_map_offer(const MapOffer &offer) {
    offered_ = offer.buffer;
}

bool Link::awaits_offer() const {
    return !failed_ && !closed_ && !has_offered_ && peer_.pid != getpid();
}

void Link::map_early(const std::optional<BufferKey> &own) {
    const bool offers = own && awaits_offer();
    if (failed_ || !(offers || offered_) || peer_gone()) {  // the last asks the kernel
        return;
    }
    if (offers) {
        has_offered_ = true;
        send_control(CellKind::map_offer, MapOffer{*own});
    }
    const std::optional<ContextInUse> in_use = context_in_use();
    if (!offered_ || !in_use) {
        return;
    }
    const BufferKey buffer = *std::exchange(offered_, std::nullopt);
    if (buffer.can_be_mapped() && is_of_other_gpu(buffer, *in_use) && is_of_peer(buffer) &&
        IpcMappingCache::instance().may_begin()) {
        find_mapping(buffer, in_use->context, kWorthAMapping, true, true);
    }
}

void Link::receive_unmap_notice(const UnmapNotice &notice) {
    if (notice.owner == owner_) {
        IpcMappingCache::instance().forget_buffer(notice.owner, notice.buffer_id);
        port_.keep_house_soon();
    }
}

/** Also what the peer has asked for and given. */
void Link::forget_mappings() {
    map_requests_.clear();
    offered_.reset();
    requested_.clear();
    handles_.clear();
    held_transfers_.clear();
    if (owner_ != 0) {
        as_possible([this] { IpcMappingCache::instance().forget_process(owner_); });
    }
}

// ---------------------------------------------------------------- the owner

void Link::receive_map_request(const MapRequest &request) {
    if (map_requests_.size() == kMaxRequests) {
        GPUSHM_LOG(error,
                   "process %d asks for GPU memory without waiting for answers: the connection is "
                   "given up; look for "
                   "memory corruption in the job's processes",
                   peer_.pid);
        fail();
        return;
    }
    map_requests_.push_back(request);
    port_.activate(*this);
}

/** Behind the copies that the peer has asked for meanwhile: it waits for these. Not while it has no
 * room for answers. */
unsigned Link::answer_map_requests() {
    unsigned count = 0;
    for (; !map_requests_.empty() && control_.empty(); ++count) {
        const MapRequest request = map_requests_.front();
        map_requests_.pop_front();
        answer_map_request(request);
    }
    return count;
}

void Link::answer_map_request(const MapRequest &request) {
    MapAnswer answer = {};
    answer.owner = request.buffer.owner;
    answer.buffer_id = request.buffer.buffer_id;
    std::optional<MappingHandle> handle;
    if (port_.config().peer_mapping) {
        handle = export_memory(request.buffer);
    }
    if (handle && handle->sharing == BufferKey::Sharing::file_descriptor &&
        !send_descriptor(peer_.cookie, {process_cookie().low, answer.buffer_id},
                         handle->descriptor)) {
        handle.reset();
    }
    if (handle) {
        answer.sharing = handle->sharing;
        memcpy(answer.ipc_handle, &handle->ipc, sizeof(answer.ipc_handle));
        remember_export(request.buffer);
    }
    send_control(CellKind::map_answer, answer);
}

/** The peer is told when it is freed. Of more than a peer keeps mapped the oldest is taken back. */
void Link::remember_export(const BufferKey &buffer) {
    const bool known = std::any_of(exported_.begin(), exported_.end(), [&](const BufferKey &other) {
        return other.buffer_id == buffer.buffer_id;
    });
    if (known) {
        return;
    }
    if (exported_.size() == kMaxExports) {
        take_back_export(exported_.begin());
    }
    exported_.push_back(buffer);
}

std::vector<BufferKey>::iterator Link::take_back_export(std::vector<BufferKey>::iterator buffer) {
    send_control(CellKind::unmap_notice, UnmapNotice{buffer->owner, buffer->buffer_id});
    return exported_.erase(buffer);
}

void Link::check_exports() {
    for (auto buffer = exported_.begin(); buffer != exported_.end() && !failed_;) {
        buffer = still_allocated(*buffer) ? std::next(buffer) : take_back_export(buffer);
    }
}

}  // namespace gpushm
