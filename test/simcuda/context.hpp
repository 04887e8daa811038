// SPDX-License-Identifier: BSD-3-Clause
// Contexts, and the stack of current contexts that each thread has.
#pragma once

#include "device_claim.hpp"
#include "driver.hpp"

#include <atomic>
#include <memory>
#include <set>
#include <vector>

namespace simcuda {

struct Device;
struct Stream;

struct Context {
    Device *device;
    bool primary;
    unsigned flags = 0;

    // A destroyed context is kept for ever, so that a stale handle is recognised. A primary context
    // comes to life again, with a new id, when it is retained again.
    bool alive = false;
    unsigned long long id = 0;  // never 0 while alive, never reused

    // The first asynchronous failure; all later calls in the context return it. Kernels look at it
    // without the lock.
    std::atomic<CUresult> sticky_error{CUDA_SUCCESS};

    std::unique_ptr<DeviceClaim> claim;     // of a device in exclusive mode
    std::shared_ptr<Stream> legacy_stream;  // the default stream
    std::set<Context *> peers;              // whose memory this context may access
    unsigned frees = 0;  // calls that wait for its work, see Engine::wait_to_free

    bool sync_memops() const { return (flags & kSyncMemops) != 0; }

private:
    static constexpr unsigned kSyncMemops = 0x80;  // CU_CTX_SYNC_MEMOPS, which CUDA 12.0 lacks
};

// Brings a context to life. CUDA_ERROR_DEVICE_UNAVAILABLE if its device is in exclusive mode and
// has another one.
CUresult start_context(Lock &lock, Context &context);

// Ends a context: waits for its work, frees its streams, events and memory.
void end_context(Lock &lock, Context &context);

Context *new_primary_context(Device &device);

// Null if `handle` is no context, alive or not. A null `handle` is none.
Context *find_context(CUcontext handle);

// The context that the calling thread works in. Null and CUDA_ERROR_INVALID_CONTEXT if it has none;
// CUDA_ERROR_CONTEXT_IS_DESTROYED, or the sticky error of a failed one.
CUresult current_context(Context **context);

// CUDA_ERROR_OUT_OF_MEMORY if the calling thread's stack is full.
CUresult push_context(Context &context);

// Takes `context` from the calling thread's stack if it is on top.
void pop_if_current(Context &context);

inline CUcontext handle_of(Context *context) {
    return reinterpret_cast<CUcontext>(context);
}

}  // namespace simcuda
