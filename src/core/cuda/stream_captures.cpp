// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/stream_captures.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/driver_patch.hpp"
#include "core/cuda/unfinished_copies.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace gpushm {
namespace {

/** A stream whose capture has begun. */
struct Captured {
    CUstream stream;
    CUcontext context;  // in which it was begun; it ends with that
    unsigned long long context_id;
};

/** The captures of the process. The mutex is not held while the driver begins one, because that may
 * have to wait for cuMemFree in another thread. */
struct Captures {
    std::mutex mutex;
    unsigned beginning = 0;  // calls under way
    std::vector<Captured> running;

    void end(CUstream stream) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found =
            std::find_if(running.begin(), running.end(),
                         [stream](const Captured &one) { return one.stream == stream; });
        if (found != running.end()) {  // else it began before the hooks
            running.erase(found);
        }
    }
};

// Up to so many captures begin without an allocation.
constexpr size_t kMaxAtOnce = 64;

Captures *const captures = &ForkSafe<Captures>::instance();

std::atomic<bool> known{false};

Captured begun_here(CUstream stream) {
    CUcontext context = nullptr;
    CudaDriver::get()->ctx_get_current(&context);
    return {stream, context, CudaDriver::get()->context_id(context)};
}

template <int which, typename... Arguments>
struct BeginHook {
    static CUresult call(CUstream stream, Arguments... arguments) {
        UnfinishedCopies::instance().cover();
        bool has_room = false;
        {
            const std::lock_guard<std::mutex> lock(captures->mutex);
            ++captures->beginning;
            has_room = as_possible(
                [] { captures->running.reserve(captures->running.size() + captures->beginning); });
        }
        const CUresult result = original(stream, arguments...);
        const Captured begun = begun_here(stream);
        const std::lock_guard<std::mutex> lock(captures->mutex);
        if (result == CUDA_SUCCESS && !has_room) {
            return result;  // it counts as beginning for ever, so memory is given back late
        }
        --captures->beginning;
        if (result == CUDA_SUCCESS) {
            captures->running.push_back(begun);
        }
        return result;
    }
    static inline CUresult (*original)(CUstream, Arguments...);
};

/** Whether the capture goes on although the application has asked to end it. In the wrong thread it
 * has ended (driver 580). */
bool goes_on(CUresult result) {
    return result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
           result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
           result == CUDA_ERROR_INVALID_CONTEXT;
}

template <int which>
struct EndHook {
    static CUresult call(CUstream stream, CUgraph *graph) {
        const CUresult result = original(stream, graph);
        if (!goes_on(result)) {
            captures->end(stream);
        }
        return result;
    }
    static inline CUresult (*original)(CUstream, CUgraph *);
};

template <int which>
struct DestroyHook {
    static CUresult call(CUstream stream) {
        captures->end(stream);  // before the handle is another stream's
        return original(stream);
    }
    static inline CUresult (*original)(CUstream);
};

Hooks capture_hooks() {
    return joined({
        hooks_of<BeginHook>("cuStreamBeginCapture", "cuStreamBeginCapture_ptsz"),
        hooks_of<BeginHook, CUstreamCaptureMode>("cuStreamBeginCapture_v2",
                                                 "cuStreamBeginCapture_v2_ptsz"),
        hooks_of<BeginHook, CUgraph, const CUgraphNode *, const void *, size_t,
                 CUstreamCaptureMode>("cuStreamBeginCaptureToGraph",
                                      "cuStreamBeginCaptureToGraph_ptsz"),
        hooks_of<EndHook>("cuStreamEndCapture", "cuStreamEndCapture_ptsz"),
        hooks_of<DestroyHook>("cuStreamDestroy", "cuStreamDestroy_v2"),
    });
}

}  // namespace

void watch_stream_captures(PatchFunction patch) {
    static std::once_flag once;
    std::call_once(once, [patch] {
        if (CudaDriver::get() == nullptr) {
            return;
        }
        captures->running.reserve(kMaxAtOnce);  // without hooks no other thread uses it
        const char *missed = install_all_hooks(patch, capture_hooks());
        if (missed != nullptr) {
            GPUSHM_LOG(debug,
                       "%s cannot be hooked: memory that waits for the GPU is given back at "
                       "any time",
                       missed);
        }
        known.store(missed == nullptr, std::memory_order_release);
    });
}

bool stream_captures_are_known() {
    return known.load(std::memory_order_acquire);
}

CapturePause::CapturePause() {
    captures->mutex.lock();
}

CapturePause::~CapturePause() {
    captures->mutex.unlock();
}

bool CapturePause::none() const {
    const auto has_ended = [](const Captured &one) {
        return !CudaDriver::get()->context_is_alive(one.context, one.context_id);
    };
    auto &running = captures->running;
    running.erase(std::remove_if(running.begin(), running.end(), has_ended), running.end());
    return running.empty() && captures->beginning == 0;
}

}  // namespace gpushm
