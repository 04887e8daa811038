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

// Trivially destroyed: the process ends with them as they are.

PinnedBufferPool &PinnedBufferPool::instance() {
    static PinnedBufferPool blocks(kBlockBytes, kBlocks);
    return blocks;
}

PinnedBufferPool &PinnedBufferPool::of_small_blocks() {
    static PinnedBufferPool blocks(kSmallBlockBytes, kSmallBlocks);
    return blocks;
}

PinnedBufferPool &PinnedBufferPool::of_large_blocks() {
    static PinnedBufferPool blocks(kLargeBlockBytes, kLargeBlocks);
    return blocks;
}

/** In a child that was just forked, where the parent's memory is not mapped. */
void PinnedBufferPool::forget_memory() {
    for (Mapping &mapping : mapping_) {
        mapping.memory.store(nullptr, std::memory_order_relaxed);
        mapping.taken.store(0, std::memory_order_relaxed);
    }
}

/** Null when there is no memory. */
unsigned char *PinnedBufferPool::make_memory() const {
    static const int watched = pthread_atfork(nullptr, nullptr, [] {
        instance().forget_memory();
        of_small_blocks().forget_memory();
        of_large_blocks().forget_memory();
    });
    void *const made = watched == 0 ? mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                    : MAP_FAILED;
    if (made == MAP_FAILED) {
        GPUSHM_LOG_ONCE(debug,
                        "cannot map %zu bytes of memory to page-lock for small copies (%s): they "
                        "use pageable memory",
                        bytes(), strerror(watched == 0 ? errno : watched));
        return nullptr;
    }
    madvise(made, bytes(), MADV_DONTFORK);
    return static_cast<unsigned char *>(made);
}

/** Null when there is no memory. */
unsigned char *PinnedBufferPool::memory_of(Mapping &mapping) const {
    unsigned char *known = mapping.memory.load(std::memory_order_acquire);
    if (known != nullptr) {
        return known;
    }
    unsigned char *const made = make_memory();
    if (made == nullptr) {
        return nullptr;
    }
    SegmentTable::instance().add(made, bytes());
    if (mapping.memory.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
        return made;
    }
    SegmentTable::instance().unmap(made, bytes());  // another thread was first
    return known;
}

/** Null: all are taken, or there is no memory. */
void *PinnedBufferPool::take_from(Mapping &mapping) const {
    const uint64_t all_taken = ~uint64_t{0} >> (64 - blocks_);
    uint64_t taken = mapping.taken.load(std::memory_order_relaxed);
    unsigned char *const begin = taken != all_taken ? memory_of(mapping) : nullptr;
    while (begin != nullptr && taken != all_taken) {
        const uint64_t lowest_free = ~taken & (taken + 1);
        if (mapping.taken.compare_exchange_weak(
                taken, taken | lowest_free, std::memory_order_acquire, std::memory_order_relaxed)) {
            return begin + static_cast<size_t>(__builtin_ctzll(lowest_free)) * block_bytes_;
        }
    }
    return nullptr;
}

void *PinnedBufferPool::take() {
    void *block = nullptr;
    for (size_t i = 0; block == nullptr && i < mappings_; ++i) {
        block = take_from(mapping_[i]);
    }
    return block;
}

void PinnedBufferPool::give_back(void *block) {
    for (Mapping &mapping : mapping_) {
        const auto begin =
            reinterpret_cast<uintptr_t>(mapping.memory.load(std::memory_order_relaxed));
        const size_t index = (reinterpret_cast<uintptr_t>(block) - begin) / block_bytes_;
        if (begin != 0 && index < blocks_) {
            mapping.taken.fetch_and(~(uint64_t{1} << index), std::memory_order_release);
            return;
        }
    }
}

namespace {

/** Whose blocks are the smallest ones that have `bytes` bytes, if any have. */
PinnedBufferPool &pool_for(size_t bytes) {
    if (bytes <= PinnedBufferPool::kSmallBlockBytes) {
        return PinnedBufferPool::of_small_blocks();
    }
    return bytes <= PinnedBufferPool::kBlockBytes ? PinnedBufferPool::instance()
                                                  : PinnedBufferPool::of_large_blocks();
}

}  // namespace

HostBlock::HostBlock(size_t bytes)
    : pool_(pool_for(bytes)),
      block_(bytes <= PinnedBufferPool::kLargeBlockBytes ? pool_.take() : nullptr),
      address_(block_ != nullptr ? block_ : malloc(bytes)) {}

HostBlock::~HostBlock() {
    if (block_ != nullptr) {
        pool_.give_back(block_);
    } else {
        free(address_);
    }
}

}  // namespace gpushm
