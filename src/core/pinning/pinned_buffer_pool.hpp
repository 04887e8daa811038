// SPDX-License-Identifier: BSD-3-Clause
// Page-locked host memory for a short while.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Blocks of one size in one mapping of 2 MiB. It is made when a block is taken for the first time,
 * page-locked when a GPU first copies to or from it (SegmentTable), and stays for the life of the
 * process. A forked child makes one of its own: the driver goes on using the parent's pages. Thread
 * safe, and takes no lock: a child never waits for a thread that it does not have. */
class PinnedBufferPool {
public:
    static constexpr size_t kBlockBytes = 128u << 10;
    static constexpr size_t kBlocks = 16;

    /** Of the process; never destroyed. */
    static PinnedBufferPool &instance();

    /** kBlockBytes bytes at a multiple of the page size; their contents are not defined. Null: all
     * are taken, or there is no memory. */
    void *take();

    /** `block` is what take() returned, and no copy uses it any more. In a forked child one that
     * its parent had taken may be given back as well. */
    void give_back(void *block);

private:
    constexpr PinnedBufferPool() = default;

    unsigned char *memory();
    static unsigned char *make_memory();
    static void forget_memory();

    std::atomic<unsigned char *> memory_{nullptr};
    std::atomic<uint32_t> taken_{0};  // a bit for each block
};

/** At least `bytes` bytes, given back by the destructor: a block of PinnedBufferPool, or ordinary
 * memory where there is none of that size. */
class HostBlock {
public:
    explicit HostBlock(size_t bytes);
    ~HostBlock();
    HostBlock(const HostBlock &) = delete;
    HostBlock &operator=(const HostBlock &) = delete;

    /** Null: there is no memory. */
    void *address() const { return address_; }

    /** A GPU may use it for who knows how long: it is never given back. */
    void leave() { block_ = address_ = nullptr; }

private:
    void *block_;  // of PinnedBufferPool; null: none
    void *address_;
};

}  // namespace gpushm
