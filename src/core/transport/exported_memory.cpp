// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/exported_memory.hpp"

#include "core/base/log.hpp"
#include "core/mapping/memory_export.hpp"
#include "core/shm/descriptor_channel.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

namespace gpushm {
namespace {

// More than a peer keeps mapped (IpcMappingCache).
constexpr size_t kMaxExports = 1024;

}  // namespace

void ExportedMemory::receive_request(const MapRequest &request) {
    if (requests_.size() == kMaxMapRequests) {
        GPUSHM_LOG(error,
                   "process %d asks for handles of GPU memory without waiting for answers: the "
                   "connection is closed; look for memory corruption in the job's processes",
                   channel_.peer.pid);
        channel_.fail();
        return;
    }
    requests_.push_back(request);
    channel_.activate();
}

unsigned ExportedMemory::answer_requests() {
    unsigned count = 0;
    for (; !requests_.empty() && channel_.control.empty(); ++count) {
        const MapRequest request = requests_.front();
        requests_.pop_front();
        answer(request);
    }
    return count;
}

void ExportedMemory::answer(const MapRequest &request) {
    MapAnswer answer = {};
    answer.owner = request.buffer.owner;
    answer.buffer_id = request.buffer.buffer_id;
    std::optional<MappingHandle> handle;
    if (channel_.port.config().peer_mapping) {
        handle = export_memory(request.buffer);
    }
    if (handle && handle->sharing == BufferKey::Sharing::file_descriptor &&
        !send_descriptor(channel_.peer.cookie, {process_cookie().low, answer.buffer_id},
                         handle->descriptor)) {
        handle.reset();
    }
    if (handle) {
        answer.sharing = handle->sharing;
        memcpy(answer.ipc_handle, &handle->ipc, sizeof(answer.ipc_handle));
        remember(request.buffer);
    }
    channel_.send(CellKind::map_answer, answer);
}

/** The peer is told when the buffer is freed. Of more than a peer keeps mapped the oldest is taken
 * back. */
void ExportedMemory::remember(const BufferKey &buffer) {
    const bool known = std::any_of(exported_.begin(), exported_.end(), [&](const BufferKey &other) {
        return other.buffer_id == buffer.buffer_id;
    });
    if (known) {
        return;
    }
    if (exported_.size() == kMaxExports) {
        take_back(exported_.begin() + (exported_.front().buffer_id == kept_ ? 1 : 0));
    }
    exported_.push_back(buffer);
}

std::vector<BufferKey>::iterator ExportedMemory::take_back(
    std::vector<BufferKey>::iterator buffer) {
    channel_.send(CellKind::unmap_notice, UnmapNotice{buffer->owner, buffer->buffer_id});
    if (buffer->buffer_id == offered_) {
        offered_ = 0;
    }
    return exported_.erase(buffer);
}

void ExportedMemory::offer(const BufferKey &buffer) {
    offered_ = buffer.buffer_id;
    channel_.send(CellKind::map_offer, MapOffer{buffer});
}

void ExportedMemory::check() {
    for (auto buffer = exported_.begin(); buffer != exported_.end();) {
        buffer = still_allocated(*buffer) ? std::next(buffer) : take_back(buffer);
    }
}

}  // namespace gpushm
