// SPDX-License-Identifier: BSD-3-Clause
// GPU memory for temporaries.
#pragma once

#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace gpushm {

/** GPU memory for temporaries. Blocks that were given back are kept for the next caller, up to 256
 * MiB: the driver takes long to allocate (doc/decisions/pinning-costs.md), and waits for all
 * kernels to free. At most 1 GiB is taken at once, because the application wants its memory. Thread
 * safe. */
class DeviceBufferPool {
public:
    static DeviceBufferPool &instance();

    /** At least `bytes` bytes on the GPU of `near`, which is device memory; the contents are not
     * defined. Null when there is none. The caller waits for the end of its copies and kernels
     * before it gives the block back. */
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
        unsigned long long buffer_id;  // MemoryInfo::buffer_id; the memory ends with its context

        /** Whether the block has ended: what lies there now may be memory of the application. */
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
    size_t leaving_bytes_ = 0;  // of blocks that wait to be freed
    std::atomic<size_t> taken_count_{0};
};

/** One block, which the destructor gives back. */
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

    /** Null when there is no block. */
    void *address() const { return address_; }

    /** Keeps the block for ever, because the GPU may still use it. */
    void leave() { address_ = nullptr; }

private:
    void *address_;
};

}  // namespace gpushm
