// SPDX-License-Identifier: BSD-3-Clause
// Page-locked host memory for temporaries.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Blocks of one size, in mappings of some blocks each. A mapping is made when all blocks of those
 * before it are taken, and page-locked when a GPU first copies to or from it (SegmentTable). It
 * stays for the life of the process. A forked child makes its own mappings, because the driver goes
 * on using the pages of the parent. Thread safe, and takes no lock: a forked child never waits for
 * a thread that it does not have. */
class PinnedBufferPool {
public:
    static constexpr size_t kBlockBytes = 128u << 10;
    static constexpr size_t kBlocks = 16;
    static constexpr size_t kSmallBlockBytes = 8u << 10;
    /** A message of a derived datatype has one while it is under way. An exchange with all
     * neighbours in three dimensions has 52 messages for each field. */
    static constexpr size_t kSmallBlocks = 1024;
    static constexpr size_t kLargeBlockBytes = 2u << 20;
    /** Both buffers of an operation. */
    static constexpr size_t kLargeBlocks = 2;

    /** kBlocks of kBlockBytes; never destroyed. */
    static PinnedBufferPool &instance();
    /** kSmallBlocks of kSmallBlockBytes; never destroyed. */
    static PinnedBufferPool &of_small_blocks();
    /** kLargeBlocks of kLargeBlockBytes; never destroyed. */
    static PinnedBufferPool &of_large_blocks();

    /** A block at a multiple of the page size; the contents are not defined. Null when all are
     * taken, or there is no memory. */
    void *take();

    /** `block` is an answer of take(), and no copy uses it any more. A forked child may also give
     * back a block of its parent. */
    void give_back(void *block);

private:
    static constexpr size_t kMostOfAMapping = 64;
    struct Mapping {
        std::atomic<unsigned char *> memory{nullptr};
        std::atomic<uint64_t> taken{0};  // a bit for each block
    };

    constexpr PinnedBufferPool(size_t block_bytes, size_t blocks)
        : block_bytes_(block_bytes),
          blocks_(blocks < kMostOfAMapping ? blocks : kMostOfAMapping),
          mappings_(blocks / blocks_) {}

    size_t bytes() const { return blocks_ * block_bytes_; }
    unsigned char *memory_of(Mapping &mapping) const;
    unsigned char *make_memory() const;
    void *take_from(Mapping &mapping) const;
    void forget_memory();

    const size_t block_bytes_;
    const size_t blocks_;    // of a mapping
    const size_t mappings_;  // that there may be
    std::array<Mapping, kSmallBlocks / kMostOfAMapping> mapping_;
};

/** At least `bytes` bytes, which the destructor gives back: a block of a PinnedBufferPool, or
 * ordinary memory where the pools have no block of that size. */
class HostBlock {
public:
    explicit HostBlock(size_t bytes);
    ~HostBlock();
    HostBlock(const HostBlock &) = delete;
    HostBlock &operator=(const HostBlock &) = delete;

    /** Null: there is no memory. */
    void *address() const { return address_; }
    bool is_of_pool() const { return block_ != nullptr; }

    /** Keeps the memory for ever, because a GPU may still use it. */
    void leave() { block_ = address_ = nullptr; }

private:
    PinnedBufferPool &pool_;
    void *block_;  // of the pool; null: none
    void *address_;
};

}  // namespace gpushm
