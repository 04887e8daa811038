// SPDX-License-Identifier: BSD-3-Clause
// Whether a GPU has anything to do for this process.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpushm {

/** Whether nothing runs in the context and nothing waits to: no kernel, no copy, of anybody in the
 * process; what a stream is told to wait for counts too. Takes 10 us, and `proof_ns` when that is
 * not so. False of one that has failed, and where the driver does not tell (before CUDA 12.5). The
 * caller knows that it is alive and that no stream of the context is being captured, for that would
 * be the end of the capture. Thread safe. */
bool context_is_idle(CUcontext context, uint64_t proof_ns);

/** Whether free_of_work() can answer: it needs a driver of CUDA 12.5, watch_contexts() and
 * watch_stream_captures(). */
bool work_is_known();

/** Whether a call that waits for all work of the context would return at once: cuMemFree,
 * cuMemHostUnregister, cuIpcCloseMemHandle. While such a call waits, no other thread can launch,
 * copy or record an event in the context (H200, driver 580; test/simcuda/conformance_free.cpp), so
 * beside a kernel of the application that waits for a message that message would never come. True
 * means nothing once a kernel is started, which a thread other than the caller may do. Our own
 * kernels, those of other contexts too, leave for the question; false while one does not. False
 * while a stream is captured or another thread is in such a call (memory_is_ending(); one that is
 * not seen, or begins in the midst of this question, holds it up), true when the context has ended.
 * `id`: context_id() when it was alive. Thread safe. */
bool free_of_work(CUcontext context, unsigned long long id);

/** While one lives, no other thread has one: a context is about to end, or must not. Waits a while
 * for those who have a ContextsLast. */
class EndOfContext {
public:
    EndOfContext();
    EndOfContext(const EndOfContext &) = delete;
    EndOfContext &operator=(const EndOfContext &) = delete;
    ~EndOfContext();
};

/** The same, unless another thread has one. */
class NoEndOfContext {
public:
    NoEndOfContext();
    NoEndOfContext(const NoEndOfContext &) = delete;
    NoEndOfContext &operator=(const NoEndOfContext &) = delete;
    ~NoEndOfContext();

    /** False: it keeps nobody out. */
    explicit operator bool() const { return has_; }

private:
    const bool has_;
};

/** While one lives, no context ends, unless it takes more than 0.5 s: memory that a kernel reads
 * may be page-locked in another context than its own. Any number of threads may have one. Means
 * nothing unless contexts_are_watched(). */
class ContextsLast {
public:
    ContextsLast();
    ContextsLast(const ContextsLast &) = delete;
    ContextsLast &operator=(const ContextsLast &) = delete;
    ~ContextsLast();

    /** False: one is about to end. */
    explicit operator bool() const { return last_; }

private:
    const bool last_;
};

}  // namespace gpushm
