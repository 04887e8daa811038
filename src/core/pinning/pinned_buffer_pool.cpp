// SPDX-License-Identifier: BSD-3-Clause
#include "core/pinning/pinned_buffer_pool.hpp"

#include "core/base/log.hpp"
#include "core/pinning/segment_table.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gpushm {
namespace {

constexpr uint32_t kAllTaken = (uint32_t{1} << PinnedBufferPool::kBlocks) - 1;
constexpr size_t kBytes = PinnedBufferPool::kBlocks * PinnedBufferPool::kBlockBytes;

}  // namespace

PinnedBufferPool &PinnedBufferPool::instance() {
    static PinnedBufferPool blocks;  // trivially destroyed: the process ends with it as it is
    return blocks;
}

/** In a child that was just forked, where the parent's memory is not mapped. */
void PinnedBufferPool::forget_memory() {
    instance().memory_.store(nullptr, std::memory_order_relaxed);
    instance().taken_.store(0, std::memory_order_relaxed);
}

/** Null when there is no memory. */
unsigned char *PinnedBufferPool::make_memory() {
    static const int watched = pthread_atfork(nullptr, nullptr, forget_memory);
    void *const made = watched == 0 ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                    : MAP_FAILED;
    if (made == MAP_FAILED) {
        GPUSHM_LOG_ONCE(
            debug,
            "no %zu bytes of memory to page-lock for small copies (%s): they go by pageable "
            "memory",
            kBytes, strerror(watched == 0 ? errno : watched));
        return nullptr;
    }
    madvise(made, kBytes, MADV_DONTFORK);
    return static_cast<unsigned char *>(made);
}

unsigned char *PinnedBufferPool::memory() {
    unsigned char *known = memory_.load(std::memory_order_acquire);
    if (known != nullptr) {
        return known;
    }
    unsigned char *const made = make_memory();
    if (made == nullptr) {
        return nullptr;
    }
    SegmentTable::instance().add(made, kBytes);
    if (memory_.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
        return made;
    }
    SegmentTable::instance().unmap(made, kBytes);  // another thread was first
    return known;
}

void *PinnedBufferPool::take() {
    unsigned char *const begin = memory();
    uint32_t taken = taken_.load(std::memory_order_relaxed);
    while (begin != nullptr && taken != kAllTaken) {
        const uint32_t lowest_free = ~taken & (taken + 1);
        if (taken_.compare_exchange_weak(taken, taken | lowest_free, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
            return begin + static_cast<size_t>(__builtin_ctz(lowest_free)) * kBlockBytes;
        }
    }
    return nullptr;
}

void PinnedBufferPool::give_back(void *block) {
    const auto begin = reinterpret_cast<uintptr_t>(memory_.load(std::memory_order_relaxed));
    const size_t index = (reinterpret_cast<uintptr_t>(block) - begin) / kBlockBytes;
    if (begin != 0 && index < kBlocks) {
        taken_.fetch_and(~(uint32_t{1} << index), std::memory_order_release);
    }
}

HostBlock::HostBlock(size_t bytes)
    : block_(bytes <= PinnedBufferPool::kBlockBytes ? PinnedBufferPool::instance().take()
                                                    : nullptr),
      address_(block_ != nullptr ? block_ : malloc(bytes)) {}

HostBlock::~HostBlock() {
    if (block_ != nullptr) {
        PinnedBufferPool::instance().give_back(block_);
    } else {
        free(address_);
    }
}

}  // namespace gpushm
