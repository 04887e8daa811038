// SPDX-License-Identifier: BSD-3-Clause
// What a copy engine has in one context of the driver.
#pragma once

#include "core/copy/cancellable_copies.hpp"
#include "core/copy/context_life.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/copy_types.hpp"
#include "core/copy/event_pool.hpp"
#include "core/copy/stream_calls.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/standby/standby_registry.hpp"

#include <cuda.h>

#include <cstddef>
#include <deque>
#include <memory>

namespace gpushm {

/** A stream and the batches that were given to it. */
struct CopyStream {
    CUstream handle = nullptr;  // made on first use
    std::deque<std::shared_ptr<CopyBatch>> submitted;
    std::shared_ptr<CopyBatch> collected;  // not submitted yet
    std::shared_ptr<CopyBatch> last_done;
};

/** Streams and events of one context, made on first use, and the batches under way there. One
 * thread at a time, whose stream captures are relaxed. */
class GpuContext {
public:
    /** Of a living context. */
    GpuContext(CUcontext handle, const ContextLife &life);
    GpuContext(const GpuContext &) = delete;
    GpuContext &operator=(const GpuContext &) = delete;
    /** Frees nothing of the driver: see destroy_streams(). */
    ~GpuContext();

    CUcontext handle() const { return handle_; }
    /** CudaDriver::context_id(). */
    unsigned long long id() const { return life.id(); }

    /** in_context() for this one. */
    template <typename Function>
    CUresult call(Function function) const {
        return in_context(handle_, id(), function);
    }

    /** The stream for copies of so many bytes. Null, logged: the driver refuses it. */
    CopyStream *stream_for(size_t bytes, CopyDirection direction);
    /** The stream for reductions, which a kernel of the application that fills the GPU holds up: so
     * it has no copies. Null, logged: the driver refuses it. */
    CopyStream *stream_for_reductions() { return made(&streams[4], 0); }
    /** Whether something is under way. */
    bool is_busy() const;

    /** Whether there is `cancellable`; makes it. */
    bool has_cancellable();
    /** CancellableCopies::start() for a batch of one copy. False: it is for the driver. */
    bool start_cancellable(const std::shared_ptr<CopyBatch> &batch, bool through_host);

    /** Marks as failed what was given to it, and passes each batch to `end`. Allocates nothing. */
    template <typename End>
    void fail_all(End end);
    /** Frees streams and events. Batches that are submitted are lost: nobody hears of their end.
     * Where the context has ended, nothing is left to free. */
    void destroy_streams();

    ContextLife life;
    CopyStream streams[5];                         // {small, bulk} x direction; reductions
    std::shared_ptr<StandbyKernel> standby;        // null: none
    std::shared_ptr<const KernelCode> kernels;     // null: none
    std::deque<std::shared_ptr<CopyBatch>> given;  // to the standby kernel, of one copy each
    std::shared_ptr<CopyBatch> last_served;
    std::unique_ptr<CancellableCopies> cancellable;  // made on first use
    std::shared_ptr<CopyBatch> last_cancellable;
    EventPool events;

private:
    CopyStream *made(CopyStream *stream, size_t bytes) const;
    bool make_stream(CopyStream &stream) const;

    const CUcontext handle_;
};

template <typename End>
void GpuContext::fail_all(End end) {
    const auto fail = [&end](CopyBatch &batch) {
        batch.fail();
        end(batch);
    };
    for (const std::shared_ptr<CopyBatch> &batch : given) {
        standby->abandon();
        fail(*batch);
    }
    given.clear();
    if (cancellable) {
        cancellable->abandon(end);
    }
    for (CopyStream &stream : streams) {
        if (stream.collected) {
            fail(*stream.collected);
            stream.collected.reset();
        }
        for (const std::shared_ptr<CopyBatch> &batch : stream.submitted) {
            fail(*batch);
        }
        stream.submitted.clear();
    }
}

}  // namespace gpushm
