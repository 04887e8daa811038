// SPDX-License-Identifier: BSD-3-Clause
// Page-locked host memory for temporaries.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Blocks of one size in one mapping of 2 MiB. The mapping is made when a block is first taken, and
 * page-locked when a GPU first copies to or from it (SegmentTable). It stays for the life of the
 * process. A forked child makes its own mapping, because the driver goes on using the pages of the
 * parent. Thread safe, and takes no lock: a forked child never waits for a thread that it does not
 * have. */
class PinnedBufferPool {
public:
    static constexpr size_t kBlockBytes = 128u << 10;
    static constexpr size_t kBlocks = 16;

    /** The one of the process; never destroyed. */
    static PinnedBufferPool &instance();

    /** kBlockBytes bytes at a multiple of the page size; the contents are not defined. Null when
     * all are taken, or there is no memory. */
    void *take();

    /** `block` is an answer of take(), and no copy uses it any more. A forked child may also give
     * back a block of its parent. */
    void give_back(void *block);

private:
    constexpr PinnedBufferPool() = default;

    unsigned char *memory();
    static unsigned char *make_memory();
    static void forget_memory();

    std::atomic<unsigned char *> memory_{nullptr};
    std::atomic<uint32_t> taken_{0};  // a bit for each block
};

/** At least `bytes` bytes, which the destructor gives back: a block of PinnedBufferPool, or
 * ordinary memory where the pool has no block of that size. */
class HostBlock {
public:
    explicit HostBlock(size_t bytes);
    ~HostBlock();
    HostBlock(const HostBlock &) = delete;
    HostBlock &operator=(const HostBlock &) = delete;

    /** Null: there is no memory. */
    void *address() const { return address_; }

    /** Keeps the memory for ever, because a GPU may still use it. */
    void leave() { block_ = address_ = nullptr; }

private:
    void *block_;  // of PinnedBufferPool; null: none
    void *address_;
};

}  // namespace gpushm
