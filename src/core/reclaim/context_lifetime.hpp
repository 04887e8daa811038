// SPDX-License-Identifier: BSD-3-Clause
// A lock on the lifetime of the contexts of this process.
#pragma once

namespace gpushm {

/** While one lives, no context ends, or this thread is about to end one. Means nothing unless
 * contexts_are_watched(): the hooks take it to end a context. */
class ContextLifetimeLock {
public:
    enum class Mode {
        /** A context is about to end. Waits for the thread that has `alive_exclusive`, and at most
         * 0.5 s for those that have `alive_shared`. */
        ending,
        /** No context ends. Taken if no other thread has `ending` or `alive_exclusive`. A thread
         * may take it again. */
        alive_exclusive,
        /** No context ends, unless that has waited 0.5 s. Taken if no thread has `ending`, by any
         * number of threads. For kernels that use memory which is page-locked in another context
         * than theirs. */
        alive_shared,
    };

    explicit ContextLifetimeLock(Mode mode);
    ContextLifetimeLock(const ContextLifetimeLock &) = delete;
    ContextLifetimeLock &operator=(const ContextLifetimeLock &) = delete;
    ~ContextLifetimeLock();

    /** Whether the lock was taken; always for `ending`. If not, it keeps nobody from anything. */
    explicit operator bool() const { return taken_; }

private:
    const Mode mode_;
    const bool taken_;
};

}  // namespace gpushm
