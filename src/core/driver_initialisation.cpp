// SPDX-License-Identifier: BSD-3-Clause
// cuInit is what begins it all. A call that was under way in another thread when it was hooked is not seen; but its
// thread, too, needs a context before it has memory, so what makes contexts is hooked as well.
#include "core/driver_initialisation.hpp"

#include "core/cuda_driver.hpp"
#include "core/driver_patch.hpp"

#include <atomic>
#include <mutex>
#include <vector>

namespace gpushm {
namespace {

std::atomic<void (*)()> listener{nullptr};
std::once_flag told;

/** A function that initialises CUDA, or makes a context. */
template <int which, typename... Arguments>
struct BeginningHook {
    static CUresult call(Arguments... arguments) {
        note_initialisation();
        return original(arguments...);
    }
    static inline CUresult (*original)(Arguments...);
};

/** cuDevicePrimaryCtxRetain is another one (driver_hooks.cpp). */
const std::vector<Hook> &beginning_hooks() {
    static const std::vector<Hook> hooks = {
        hook<BeginningHook<0, unsigned>>("cuInit", "cuInit"),
        hook<BeginningHook<1, CUcontext *, unsigned, CUdevice>>("cuCtxCreate", "cuCtxCreate"),
        hook<BeginningHook<2, CUcontext *, unsigned, CUdevice>>("cuCtxCreate_v2", "cuCtxCreate"),
        hook<BeginningHook<3, CUcontext *, void *, int, unsigned, CUdevice>>("cuCtxCreate_v3", "cuCtxCreate"),
        hook<BeginningHook<4, CUcontext *, void *, unsigned, CUdevice>>("cuCtxCreate_v4", "cuCtxCreate"),
    };
    return hooks;
}

}  // namespace

bool watch_initialisation(PatchFunction patch, void (*begins)()) {
    static std::mutex mutex;
    static bool hooked = false;
    const std::lock_guard<std::mutex> lock(mutex);
    const CudaDriver *driver = CudaDriver::get();
    if (driver == nullptr || !driver_waits_hooked()) {
        return false;
    }
    void (*none)() = nullptr;
    if (listener.compare_exchange_strong(none, begins)) {
        hooked = install_all_hooks(patch, beginning_hooks()) == nullptr;
    }
    // Asked when the hooks are there.
    CUcontext context = nullptr;
    return hooked && driver->ctx_get_current(&context) == CUDA_ERROR_NOT_INITIALIZED;
}

void note_initialisation() {
    if (void (*begins)() = listener.load(std::memory_order_acquire)) {
        std::call_once(told, begins);
    }
}

}  // namespace gpushm
