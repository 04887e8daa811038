// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy_engine.hpp"

#include "core/cuda_driver.hpp"
#include "core/host_regions.hpp"
#include "core/log.hpp"

#include <cstring>
#include <memory>
#include <mutex>

namespace gpushm {
namespace {

CUdeviceptr device_pointer(const void *address) { return reinterpret_cast<CUdeviceptr>(address); }

Status failed(const char *what, size_t length, CUresult result) {
    GPUSHM_LOG(error, "%s failed for a GPU copy of %zu bytes (%s): see whether the application freed "
               "the buffer too early or a kernel faulted (compute-sanitizer)", what, length,
               CudaDriver::get()->error_name(result));
    return Status::gpu_error;
}

}  // namespace

CopyEngine::~CopyEngine() {
    while (!contexts_.empty()) {
        forget(contexts_.begin()->first);
    }
    for (const auto &[device, context] : primary_contexts_) {
        (void)context;
        CudaDriver::get()->device_primary_ctx_release(device);
    }
}

CUcontext CopyEngine::context_of(const MemoryInfo &gpu_side) {
    if (gpu_side.context != nullptr) {
        return gpu_side.context;
    }
    const auto known = primary_contexts_.find(gpu_side.device);
    if (known != primary_contexts_.end()) {
        return known->second;
    }
    CUcontext context = nullptr;
    if (CudaDriver::get()->device_primary_ctx_retain(&context, gpu_side.device) == CUDA_SUCCESS) {
        primary_contexts_[gpu_side.device] = context;
    }
    return context;
}

/** The context, which is current, with its streams. Null when the driver refuses them. */
CopyEngine::Context *CopyEngine::enter(CUcontext handle) {
    Context &context = contexts_[handle];
    const unsigned long long id = CudaDriver::get()->context_id(handle);
    if (context.id != id) {
        // The streams and events of the context that had this handle before ended with it.
        context = Context();
        context.id = id;
    }
    if (context.to_gpu == nullptr && !make_streams(context)) {
        contexts_.erase(handle);
        return nullptr;
    }
    return &context;
}

bool CopyEngine::make_streams(Context &context) {
    const CudaDriver *driver = CudaDriver::get();
    if (driver->stream_create(&context.to_gpu, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return false;
    }
    if (driver->stream_create(&context.from_gpu, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        driver->stream_destroy(context.to_gpu);
        return false;
    }
    return true;
}

/** Drops what belongs to a context, which may have been destroyed by the application
 *  (cudaDeviceReset): then there is nothing left to free. */
void CopyEngine::forget(CUcontext handle) {
    const CudaDriver *driver = CudaDriver::get();
    const auto found = contexts_.find(handle);
    const Context &context = found->second;
    CurrentContext current(driver, handle);
    if (current.result() == CUDA_SUCCESS && driver->context_id(handle) == context.id) {
        for (CUevent event : context.free_events) {
            driver->event_destroy(event);
        }
        driver->stream_destroy(context.to_gpu);
        driver->stream_destroy(context.from_gpu);
    }
    contexts_.erase(found);
}

CUevent CopyEngine::take_event(Context &context) {
    CUevent event = nullptr;
    if (!context.free_events.empty()) {
        event = context.free_events.back();
        context.free_events.pop_back();
    } else if (CudaDriver::get()->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return nullptr;
    }
    return event;
}

void CopyEngine::retire(CopyTicket *ticket) {
    const auto context = contexts_.find(ticket->context);
    if (context != contexts_.end()) {
        context->second.free_events.push_back(ticket->event);
    } else {
        CudaDriver::get()->event_destroy(ticket->event);
    }
    *ticket = CopyTicket();
}

Status CopyEngine::submit(Context &context, CUcontext handle, void *destination, const void *source,
                          size_t length, CopyDirection direction, CopyTicket *ticket) {
    const CudaDriver *driver = CudaDriver::get();
    CUstream stream = direction == CopyDirection::to_gpu ? context.to_gpu : context.from_gpu;
    CUevent event = take_event(context);
    if (event == nullptr) {
        return failed("cuEventCreate", length, CUDA_ERROR_OUT_OF_MEMORY);
    }
    CUresult result = driver->memcpy_async(device_pointer(destination), device_pointer(source),
                                           length, stream);
    if (result != CUDA_SUCCESS) {
        context.free_events.push_back(event);
        return failed("cuMemcpyAsync", length, result);
    }
    result = driver->event_record(event, stream);
    if (result != CUDA_SUCCESS) {
        // The copy runs: nobody may touch its buffers before it ends.
        driver->stream_synchronize(stream);
        context.free_events.push_back(event);
        return failed("cuEventRecord", length, result);
    }
    *ticket = {event, handle};
    return Status::in_progress;
}

Status CopyEngine::start(void *destination, const void *source, size_t length,
                         const MemoryInfo &gpu_side, CopyDirection direction,
                         CopyTicket *ticket) {
    *ticket = CopyTicket();
    if (length == 0) {
        return Status::ok;
    }
    const CudaDriver *driver = CudaDriver::get();
    CUcontext handle = context_of(gpu_side);
    if (handle == nullptr) {
        return failed("cuDevicePrimaryCtxRetain", length, CUDA_ERROR_INVALID_CONTEXT);
    }
    CurrentContext current(driver, handle);
    if (current.result() != CUDA_SUCCESS) {
        contexts_.erase(handle);
        return failed("cuCtxPushCurrent", length, current.result());
    }
    Context *context = enter(handle);
    if (context == nullptr) {
        return failed("cuStreamCreate", length, CUDA_ERROR_OUT_OF_MEMORY);
    }
    HostRegions::instance().ensure_pinned(destination);
    HostRegions::instance().ensure_pinned(source);
    return submit(*context, handle, destination, source, length, direction, ticket);
}

Status CopyEngine::poll(CopyTicket *ticket) {
    if (ticket->event == nullptr) {
        return Status::ok;
    }
    const CudaDriver *driver = CudaDriver::get();
    CUresult result = driver->event_query(ticket->event);
    if (result == CUDA_ERROR_INVALID_CONTEXT) {  // this thread has no current one
        CurrentContext current(driver, ticket->context);
        result = driver->event_query(ticket->event);
    }
    if (result == CUDA_ERROR_NOT_READY) {
        return Status::in_progress;
    }
    if (result != CUDA_SUCCESS) {
        abandon(ticket);
        return failed("cuEventQuery", 0, result);
    }
    retire(ticket);
    return Status::ok;
}

/** Gives up a copy of which the driver does not tell the end; on return it does not run any more. The
 *  event is not used again: its context may be gone. */
void CopyEngine::abandon(CopyTicket *ticket) {
    const CudaDriver *driver = CudaDriver::get();
    const auto context = contexts_.find(ticket->context);
    CurrentContext current(driver, ticket->context);
    if (current.result() == CUDA_SUCCESS && context != contexts_.end() &&
        driver->context_id(ticket->context) == context->second.id) {
        driver->stream_synchronize(context->second.to_gpu);
        driver->stream_synchronize(context->second.from_gpu);
    }
    *ticket = CopyTicket();
}

Status CopyEngine::wait(CopyTicket *ticket) {
    Status status;
    do {
        status = poll(ticket);
    } while (status == Status::in_progress);
    return status;
}

Status start_any(CopyEngine &engine, void *destination, const void *source, size_t length,
                 CopyTicket *ticket) {
    *ticket = CopyTicket();
    if (length == 0) {
        return Status::ok;
    }
    const MemoryInfo destination_info = query_memory(destination);
    if (destination_info.needs_gpu()) {
        return engine.start(destination, source, length, destination_info, CopyDirection::to_gpu,
                            ticket);
    }
    const MemoryInfo source_info = query_memory(source);
    if (source_info.needs_gpu()) {
        return engine.start(destination, source, length, source_info, CopyDirection::from_gpu,
                            ticket);
    }
    memcpy(destination, source, length);
    return Status::ok;
}

namespace {

/** Idle engines; as many are made as threads copy at once. Never destroyed: at process exit the
 *  driver may be gone before us. */
class EnginePool {
public:
    std::unique_ptr<CopyEngine> take() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (idle_.empty()) {
            return std::make_unique<CopyEngine>();
        }
        std::unique_ptr<CopyEngine> engine = std::move(idle_.back());
        idle_.pop_back();
        return engine;
    }
    void put_back(std::unique_ptr<CopyEngine> engine) {
        std::lock_guard<std::mutex> lock(mutex_);
        idle_.push_back(std::move(engine));
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<CopyEngine>> idle_;
};

EnginePool &engine_pool() {
    static EnginePool *pool = new EnginePool;
    return *pool;
}

}  // namespace

Status copy_any(void *destination, const void *source, size_t length) {
    // Most calls are between host buffers and need no engine.
    if (CudaDriver::get() == nullptr) {
        memcpy(destination, source, length);
        return Status::ok;
    }
    std::unique_ptr<CopyEngine> engine = engine_pool().take();
    CopyTicket ticket;
    Status status = start_any(*engine, destination, source, length, &ticket);
    if (status == Status::in_progress) {
        status = engine->wait(&ticket);
    }
    engine_pool().put_back(std::move(engine));
    return status;
}

}  // namespace gpushm
