// SPDX-License-Identifier: BSD-3-Clause
// GPU memory for a short while.
#pragma once

#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace gpushm {

/** Blocks that were given back are kept for the next caller, up to 256 MiB of them: to allocate
 * takes 0.1 to 1 ms, and to free waits for all kernels. No more than 1 GiB is taken at once: the
 * application wants its memory. Thread safe. */
class DeviceBufferPool {
public:
    static DeviceBufferPool &instance();

    /** At least `bytes` bytes on the GPU of `near`, device memory; its contents are not defined.
     * Null when there is none. Whoever takes a block uses its copies and kernels to their end
     * before he gives it back. */
    void *take(size_t bytes, const MemoryInfo &near);

    /** False: `address` is not what take() returned. */
    bool give_back(void *address);

    /** Whether any block is taken; a load. */
    bool any_taken() const { return taken_count_.load(std::memory_order_acquire) != 0; }

private:
    struct Block {
        void *address;
        size_t length;
        CUcontext context;
        unsigned long long buffer_id;  // MemoryInfo::buffer_id: memory goes with its context

        /** What lies there now may be the application's. */
        bool is_gone() const { return id_of(address) != buffer_id; }
    };

    static unsigned long long id_of(const void *address);
    bool reserve(size_t bytes);
    void forget_gone();
    bool find_idle(size_t bytes, CUcontext context, Block *found);
    static bool allocate(size_t bytes, CUcontext context, Block *block);
    void free(const Block &block);

    std::mutex mutex_;
    std::map<void *, Block> taken_;
    std::vector<Block> idle_;
    size_t idle_bytes_ = 0;
    size_t taken_bytes_ = 0;
    size_t leaving_bytes_ = 0;  // of blocks that the driver is to get back
    std::atomic<size_t> taken_count_{0};
};

/** One block, given back by the destructor. */
class DeviceBlock {
public:
    DeviceBlock(size_t bytes, const MemoryInfo &near)
        : address_(DeviceBufferPool::instance().take(bytes, near)) {}
    ~DeviceBlock() {
        if (address_ != nullptr) {
            DeviceBufferPool::instance().give_back(address_);
        }
    }
    DeviceBlock(const DeviceBlock &) = delete;
    DeviceBlock &operator=(const DeviceBlock &) = delete;

    /** Null: there is none. */
    void *address() const { return address_; }

    /** The GPU may use it for who knows how long: it is never given back. */
    void leave() { address_ = nullptr; }

private:
    void *address_;
};

}  // namespace gpushm
