// SPDX-License-Identifier: BSD-3-Clause
#include "core/pinning/device_buffer_pool.hpp"

#include "core/base/log.hpp"
#include "core/memory/memory_query.hpp"
#include "core/reclaim/deferred_free.hpp"

#include <algorithm>

namespace gpushm {
namespace {

constexpr size_t kMaxIdleBytes = size_t{256} << 20;
constexpr size_t kMaxTakenBytes = size_t{1} << 30;
constexpr size_t kUnit = size_t{2} << 20;  // what the driver takes from the GPU at a time

/** Of short messages, which may be many; the driver puts several into a unit. */
constexpr size_t kShortBytes = size_t{8} << 10;
constexpr size_t kShortUnit = size_t{64} << 10;

/** The size to allocate: a next caller that needs a little more can use the block, too. */
size_t rounded(size_t bytes) {
    return bytes <= kShortBytes ? kShortUnit : (bytes + bytes / 8 + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

DeviceBufferPool &DeviceBufferPool::instance() {
    // Never destroyed: at process exit the driver may be gone before.
    static DeviceBufferPool *const blocks = new DeviceBufferPool;
    return *blocks;
}

/** MemoryInfo::buffer_id. A driver that fails is asked a second time, because a block that counts
 * as ended is lost. */
unsigned long long DeviceBufferPool::id_of(const void *address) {
    const unsigned long long id = query_memory(address).buffer_id;
    return id != 0 ? id : query_memory(address).buffer_id;
}

/** Drops idle blocks whose context has ended. */
void DeviceBufferPool::forget_gone() {
    const auto is_gone = [&](const Block &block) {
        const bool gone = block.is_gone();
        idle_bytes_ -= gone ? block.length : 0;
        return gone;
    };
    idle_.erase(std::remove_if(idle_.begin(), idle_.end(), is_gone), idle_.end());
}

/** Takes the smallest idle block that is large enough, unless most of it would be wasted. */
bool DeviceBufferPool::find_idle(size_t bytes, CUcontext context, Block *found) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto best = idle_.end();
    for (auto block = idle_.begin(); block != idle_.end(); ++block) {
        if (block->context == context && block->length >= bytes &&
            block->length <= 2 * rounded(bytes) &&
            (best == idle_.end() || block->length < best->length)) {
            best = block;
        }
    }
    if (best == idle_.end()) {
        return false;
    }
    if (best->is_gone()) {
        forget_gone();
        return false;
    }
    *found = *best;
    idle_bytes_ -= best->length;
    idle_.erase(best);
    return true;
}

bool DeviceBufferPool::allocate(size_t bytes, CUcontext context, Block *block) {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context);
    CUdeviceptr address = 0;
    const CUresult result = current.result() != CUDA_SUCCESS
                                ? current.result()
                                : driver->mem_alloc(&address, rounded(bytes));
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "cannot allocate %zu bytes of temporary GPU memory (%s)", rounded(bytes),
                   driver->error_name(result));
        return false;
    }
    GPUSHM_LOG(debug, "allocated %zu bytes of GPU memory for temporaries", rounded(bytes));
    auto *const memory = reinterpret_cast<void *>(address);
    *block = {memory, rounded(bytes), context, id_of(memory)};
    return true;
}

/** Counts a block before it is allocated. */
bool DeviceBufferPool::reserve(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > kMaxTakenBytes || taken_bytes_ + leaving_bytes_ + rounded(bytes) > kMaxTakenBytes) {
        return false;
    }
    taken_bytes_ += rounded(bytes);
    return true;
}

void *DeviceBufferPool::take(size_t bytes, const MemoryInfo &near) {
    if (near.kind != MemoryKind::device || near.context == nullptr || !reserve(bytes)) {
        return nullptr;
    }
    Block block = {};
    const bool found =
        find_idle(bytes, near.context, &block) || allocate(bytes, near.context, &block);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!found) {
        taken_bytes_ -= rounded(bytes);
        return nullptr;
    }
    taken_bytes_ += block.length - rounded(bytes);
    taken_[block.address] = block;
    taken_count_.store(taken_.size(), std::memory_order_release);
    return block.address;
}

void DeviceBufferPool::free(const Block &block) {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    if (!block.is_gone()) {
        const CurrentContext current(driver, block.context);
        driver->mem_free(device_pointer(block.address));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_bytes_ -= block.length;
}

bool DeviceBufferPool::give_back(void *address) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto taken = taken_.extract(address);
    if (taken.empty()) {
        return false;
    }
    const Block block = taken.mapped();
    taken_bytes_ -= block.length;
    taken_count_.store(taken_.size(), std::memory_order_release);
    if (block.is_gone()) {
        return true;  // with its context
    }
    if (idle_bytes_ + block.length > kMaxIdleBytes) {
        forget_gone();
    }
    if (idle_bytes_ + block.length <= kMaxIdleBytes) {
        idle_.push_back(block);
        idle_bytes_ += block.length;
        return true;
    }
    leaving_bytes_ += block.length;
    lock.unlock();
    defer_free(block.context, CudaDriver::get()->context_id(block.context),
               [this, block] { free(block); });
    return true;
}

}  // namespace gpushm
