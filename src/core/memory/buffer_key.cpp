// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/buffer_key.hpp"

#include "core/base/addresses.hpp"
#include "core/base/process.hpp"
#include "core/cuda/cuda_driver.hpp"

#include <atomic>
#include <cstring>

namespace gpushm {
namespace {

constexpr size_t kMaxDevices = 64;

uint64_t ask_identity(CUdevice device) {
    CUuuid uuid = {};
    if (CudaDriver::get()->device_get_uuid(&uuid, device) != CUDA_SUCCESS) {
        return 0;
    }
    uint64_t words[2];
    memcpy(words, &uuid, sizeof(words));
    const uint64_t identity = words[0] ^ (words[1] << 1 | words[1] >> 63);
    return identity != 0 ? identity : 1;
}

BufferKey::Sharing sharing_of(const MemoryInfo &info) {
    if (info.kind != MemoryKind::device) {
        return BufferKey::Sharing::none;
    }
    // Memory of virtual memory management may have both; the handle of an address range is cheaper.
    return info.ipc_capable        ? BufferKey::Sharing::ipc_handle
           : info.exportable_by_fd ? BufferKey::Sharing::file_descriptor
                                   : BufferKey::Sharing::none;
}

}  // namespace

uint64_t device_identity(CUdevice device) {
    static std::atomic<uint64_t> known[kMaxDevices];
    if (device < 0 || static_cast<size_t>(device) >= kMaxDevices) {
        return 0;
    }
    uint64_t identity = known[device].load(std::memory_order_relaxed);
    if (identity == 0) {
        identity = ask_identity(device);
        known[device].store(identity, std::memory_order_relaxed);
    }
    return identity;
}

BufferKey make_buffer_key(const MemoryInfo &info) {
    BufferKey name;
    name.owner = process_cookie().low;
    name.kind = info.kind;
    if (!info.needs_gpu()) {
        return name;
    }
    name.buffer_id = info.buffer_id;
    name.base = to_number(info.base);
    name.length = info.length;
    name.device = device_identity(info.device);
    name.sharing = sharing_of(info);
    return name;
}

BufferKey make_buffer_key(const MemoryInfo &info, bool by_gpu) {
    BufferKey name = make_buffer_key(info);
    name.on_cpu = info.kind == MemoryKind::managed && !by_gpu;
    return name;
}

}  // namespace gpushm
