// SPDX-License-Identifier: BSD-3-Clause
// cuInit is what begins it all. A call that was under way in another thread when it was hooked is not seen; but its
// thread, too, needs a context before it has memory, so what makes contexts is hooked as well, as far as it can be:
// cuDevicePrimaryCtxRetain always.
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
thread_local bool proving;
thread_local bool proved;

/** A function that initialises CUDA, or makes a context. */
template <int which, typename... Arguments>
struct BeginningHook {
    static CUresult call(Arguments... arguments) {
        if (proving) {
            proved = true;
            return CUDA_SUCCESS;
        }
        note_initialisation();
        return original(arguments...);
    }
    static inline CUresult (*original)(Arguments...);
};

const std::vector<Hook> &initialisation_hooks() {
    static const std::vector<Hook> hooks = {hook<BeginningHook<0, unsigned>>("cuInit", "cuInit")};
    return hooks;
}

/** cuDevicePrimaryCtxRetain is another one (driver_hooks.cpp). */
const std::vector<Hook> &context_hooks() {
    static const std::vector<Hook> hooks = {
        hook<BeginningHook<1, CUcontext *, unsigned, CUdevice>>("cuCtxCreate", "cuCtxCreate"),
        hook<BeginningHook<2, CUcontext *, unsigned, CUdevice>>("cuCtxCreate_v2", "cuCtxCreate"),
        hook<BeginningHook<3, CUcontext *, void *, int, unsigned, CUdevice>>("cuCtxCreate_v3", "cuCtxCreate"),
        hook<BeginningHook<4, CUcontext *, void *, unsigned, CUdevice>>("cuCtxCreate_v4", "cuCtxCreate"),
    };
    return hooks;
}

/** As the application calls it; the driver does not learn of it. */
bool initialisation_reaches_hook() {
    proving = true;
    proved = false;
    CudaDriver::get()->init(0);
    proving = false;
    return proved;
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
        hooked = install_all_hooks(patch, initialisation_hooks()) == nullptr && initialisation_reaches_hook();
        install_hooks(patch, context_hooks());
    }
    // Asked when the hooks are there.
    unsigned memory_type = 0;
    void *value = &memory_type;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    return hooked && driver->pointer_get_attributes(1, &attribute, &value, reinterpret_cast<CUdeviceptr>(&value)) ==
                         CUDA_ERROR_NOT_INITIALIZED;
}

void note_initialisation() {
    if (void (*begins)() = listener.load(std::memory_order_acquire)) {
        std::call_once(told, begins);
    }
}

}  // namespace gpushm
