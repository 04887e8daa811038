// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/gpu_context.hpp"

#include "core/copy/stream_calls.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/standby/standby_registry.hpp"

#include <algorithm>
#include <iterator>

namespace gpushm {

GpuContext::GpuContext(CUcontext handle, const ContextLife &life_of_handle)
    : life(life_of_handle),
      standby(StandbyKernels::instance().find(handle, life_of_handle.id())),
      kernels(KernelCodes::instance().find(handle, life_of_handle.id())),
      events(handle, life_of_handle.id()),
      handle_(handle) {}

GpuContext::~GpuContext() = default;

CopyStream *GpuContext::stream_for(size_t bytes, CopyDirection direction) {
    // Longer copies have a stream of their own, so that small ones overtake them.
    constexpr size_t kBulkBytes = 1u << 20;
    return made(
        &streams[(bytes >= kBulkBytes ? 2 : 0) + (direction == CopyDirection::from_gpu ? 1 : 0)],
        bytes);
}

/** Null, logged: the driver refuses it. */
CopyStream *GpuContext::made(CopyStream *stream, size_t bytes) const {
    if (stream->handle == nullptr && !make_stream(*stream)) {
        log_copy_failure("cuStreamCreate", bytes, CUDA_ERROR_OUT_OF_MEMORY);
        return nullptr;
    }
    return stream;
}

bool GpuContext::make_stream(CopyStream &stream) const {
    return retry_once([&] {
        const CudaDriver *driver = CudaDriver::get();
        CurrentContext current(driver, handle_, id());
        return current.result() == CUDA_SUCCESS &&
               driver->stream_create(&stream.handle, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    });
}

bool GpuContext::is_busy() const {
    return !given.empty() || (cancellable && !cancellable->idle()) ||
           std::any_of(std::begin(streams), std::end(streams), [](const CopyStream &stream) {
               return !stream.submitted.empty() || stream.collected;
           });
}

bool GpuContext::has_cancellable() {
    static const bool possible = !launches_are_synchronous();
    if (possible && !cancellable) {
        cancellable = CancellableCopies::make(handle_, id(), kernels);
    }
    return cancellable != nullptr;
}

bool GpuContext::start_cancellable(const std::shared_ptr<CopyBatch> &batch, bool through_host) {
    return has_cancellable() && cancellable->start(batch, through_host);
}

void GpuContext::destroy_streams() {
    const CudaDriver *driver = CudaDriver::get();
    CurrentContext current(driver, handle_, id());
    for (CopyStream &stream : streams) {
        for (const std::shared_ptr<CopyBatch> &batch : stream.submitted) {
            if (current.result() == CUDA_SUCCESS) {
                driver->event_destroy(batch->event);
            }
            if (!context_has_ended(current.result())) {
                batch->lose();
            }
        }
    }
    if (current.result() == CUDA_SUCCESS) {
        for (CopyStream &stream : streams) {
            if (stream.handle != nullptr) {
                driver->stream_destroy(stream.handle);
            }
        }
        events.destroy();
    }
}

}  // namespace gpushm
