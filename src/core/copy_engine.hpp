// SPDX-License-Identifier: BSD-3-Clause
// Copies between memory kinds by the driver's copy functions, on streams of our own.
#pragma once

#include "core/memory_info.hpp"
#include "core/status.hpp"

#include <cuda.h>

#include <cstddef>
#include <map>
#include <vector>

namespace gpushm {

/** Which way a copy goes, seen from the GPU; decides the stream, so that both directions of the link
 *  are busy at once. A copy between two GPU buffers is to_gpu. */
enum class CopyDirection { to_gpu, from_gpu };

/** A copy under way; value type, null event when it is complete already. */
struct CopyTicket {
    CUevent event = nullptr;
    CUcontext context = nullptr;
};

/** One thread at a time. No copy waits for work of the application: the streams are non-blocking
 *  (CU_STREAM_NON_BLOCKING). The caller's current context is what it was after every call; a context
 *  is never made, but the primary one of a device whose memory names no context is retained. */
class CopyEngine {
public:
    CopyEngine() = default;
    CopyEngine(const CopyEngine &) = delete;
    CopyEngine &operator=(const CopyEngine &) = delete;
    ~CopyEngine();

    /** Starts a copy of which at least one side needs the GPU; `gpu_side` says which context does it.
     *  ok or in_progress (then poll the ticket; copies of one direction and context
     *  complete in the order of their starts); otherwise gpu_error, logged. The host side
     *  must stay as it is until completion; shared segments are page-locked on the way. */
    Status start(void *destination, const void *source, size_t length, const MemoryInfo &gpu_side,
                 CopyDirection direction, CopyTicket *ticket);

    /** in_progress, ok or gpu_error; after the last two the ticket is used up and the copy is over.
     *  Needs no current context. */
    Status poll(CopyTicket *ticket);

    /** Waits for a ticket; ok or gpu_error. */
    Status wait(CopyTicket *ticket);

private:
    /** Streams and events of one context, made on first use. */
    struct Context {
        unsigned long long id = 0;  // CudaDriver::context_id
        CUstream to_gpu = nullptr;  // also GPU to GPU
        CUstream from_gpu = nullptr;
        std::vector<CUevent> free_events;
    };

    CUcontext context_of(const MemoryInfo &gpu_side);
    Context *enter(CUcontext handle);
    static bool make_streams(Context &context);
    Status submit(Context &context, CUcontext handle, void *destination, const void *source,
                  size_t length, CopyDirection direction, CopyTicket *ticket);
    CUevent take_event(Context &context);
    void retire(CopyTicket *ticket);
    void abandon(CopyTicket *ticket);
    void forget(CUcontext handle);

    std::map<CUcontext, Context> contexts_;
    std::map<CUdevice, CUcontext> primary_contexts_;
};

/** Starts a copy between any two kinds of memory; as CopyEngine::start, and ok at once where no GPU is
 *  needed. */
Status start_any(CopyEngine &engine, void *destination, const void *source, size_t length,
                 CopyTicket *ticket);

/** Copies `length` bytes between any two kinds of memory and waits; for callers from any thread,
 *  each call takes an idle engine of a common pool. ok or gpu_error, logged. */
Status copy_any(void *destination, const void *source, size_t length);

}  // namespace gpushm
