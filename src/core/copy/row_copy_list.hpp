// SPDX-License-Identifier: BSD-3-Clause
// Copies for one launch of the kernel of row_copy_kernel.cu.
#pragma once

#include "core/copy/copy_types.hpp"
#include "core/kernels/row_copy_kernel.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/reclaim/context_lifetime.hpp"

#include <cstddef>
#include <optional>

namespace gpushm {

/** The kernel's description of `rows` of `length` bytes each. */
RowCopy row_copy(void *destination, const void *source, size_t length, const CopyRows &rows);

/** Holds few copies among the parameters of a launch, more in page-locked host memory. Must live
 * until the kernel has ended. */
class RowCopyList {
public:
    static constexpr size_t kMax = PinnedBufferPool::kBlockBytes / sizeof(RowCopy);

    /** For at most `capacity` copies, at most kMax. */
    explicit RowCopyList(size_t capacity);
    RowCopyList(const RowCopyList &) = delete;
    RowCopyList &operator=(const RowCopyList &) = delete;

    /** False: there is no memory for it, or a context is about to end; nothing may be added. */
    bool has_room() const { return copies_ != nullptr && contexts_alive_; }
    void add(const RowCopy &copy);

    /** The launch that makes the copies. It refers to this list. */
    KernelLaunch launch();

    /** The end of the kernel is not known: what it reads is never used for anything else. */
    void leave() {
        if (block_) {
            block_->leave();
        }
    }

private:
    // Other contexts, in which this list or copied memory may be page-locked, must last.
    const ContextLifetimeLock contexts_alive_{ContextLifetimeLock::Mode::alive_shared};
    RowCopies parameters_;
    std::optional<HostBlock> block_;
    RowCopy *copies_;
    uint64_t most_words_ = 0;  // of a copy
};

}  // namespace gpushm
