// SPDX-License-Identifier: BSD-3-Clause
// Only functions that free memory are hooked, not those that allocate: an allocation enters the
// table when a message first meets it and the driver is asked, whether it is older than the hooks
// or not.
#include "core/hooks/driver_hooks.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_patch.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/ended_contexts.hpp"
#include "core/cuda/stream_captures.hpp"
#include "core/cuda/unfinished_copies.hpp"
#include "core/hooks/copy_hooks.hpp"
#include "core/hooks/early_returns.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/memory/met_memory.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/reclaim/kernel_preload.hpp"
#include "core/standby/standby_registry.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

void (*freed_listener)(const MemoryInfo &);  // set before the first hook
thread_local bool proving;
thread_local bool proved;
thread_local bool releases_own;  // a primary context that this thread has just retained

using Allocations = AllocationTable::Allocations;

void report(const Allocations &gone) {
    for (const auto &one : gone) {
        if (freed_listener != nullptr) {
            as_possible([&] { freed_listener(one.second); });
        }
    }
}

/** Encloses a call that ends allocations, which waits for all kernels. They are forgotten before
 * the call, so that none is believed in when the address becomes something else; and again after
 * it, because a thread that asked the driver in between has seen them alive. */
template <typename Forget>
class Ending {
public:
    explicit Ending(Forget forget) : forget_(forget) {
        DriverWatch::instance().endings.fetch_add(1, std::memory_order_acq_rel);
        report(forget_());
    }
    Ending(const Ending &) = delete;
    Ending &operator=(const Ending &) = delete;
    ~Ending() {
        report(forget_());
        DriverWatch::instance().endings.fetch_sub(1, std::memory_order_acq_rel);
    }

private:
    Forget forget_;
    StandbyKernels::Absence no_kernel_;
};

Allocations forget_contexts() {
    DriverWatch::instance().contexts_gone.fetch_add(1, std::memory_order_release);
    return AllocationTable::instance().forget_all();
}

/** A function of the driver that ends the allocation at its argument. */
template <int which, typename Address>
struct FreeHook {
    static CUresult call(Address address) {
        const void *pointer = (const void *)address;
        if (proving) {
            proved = true;
            return CUDA_SUCCESS;
        }
        const Ending ending([pointer] { return AllocationTable::instance().forget(pointer); });
        return original(address);
    }
    static inline CUresult (*original)(Address);
};

/** Also frees memory of cuMemAlloc. Memory of pools is not known here, and the call does not wait
 * for kernels. */
template <int which>
struct FreeAsyncHook {
    static CUresult call(CUdeviceptr address, CUstream stream) {
        forget(address);
        const CUresult result = original(address, stream);
        forget(address);  // a thread that asked in between has seen it alive
        return result;
    }
    static void forget(CUdeviceptr address) {
        const void *pointer = reinterpret_cast<const void *>(address);
        MemoryInfo known;
        if (AllocationTable::instance().find(pointer, &known)) {
            report(AllocationTable::instance().forget(pointer));
        }
    }
    static inline CUresult (*original)(CUdeviceptr, CUstream);
};

/** A function that may end any number of allocations: the variables of a module. */
template <typename Module>
struct UnloadHook {
    static CUresult call(Module module) {
        const Ending ending([] { return AllocationTable::instance().forget_all(); });
        return original(module);
    }
    static inline CUresult (*original)(Module);
};

/** The context that a call names to end it; null if there is none. */
CUcontext named_context(CUcontext context) {
    return context;
}
CUcontext named_context(void * /*green*/) {
    return nullptr;  // drivers that have green contexts number contexts
}
CUcontext named_context(CUdevice device) {
    const CudaDriver *driver = CudaDriver::get();
    if (!driver->primary_context_is_active(device).value_or(false)) {
        return nullptr;
    }
    const CUcontext context = retain_for_copies(device);
    releases_own = true;
    driver->device_primary_ctx_release(device);
    releases_own = false;
    return context;
}

/** Whether it has ended, after a call that did not fail. */
template <typename Context>
bool is_over(Context /*context*/) {
    return true;
}
bool is_over(CUdevice device) {
    return !CudaDriver::get()->primary_context_is_active(device).value_or(false);
}

/** A function that may end a context, and with it page-locks of memory that kernels of other
 * contexts read. */
template <int which, typename Handle>
struct ContextHook {
    static CUresult call(Handle handle) {
        constexpr uint64_t kKernelPatienceNs = 10'000'000;
        if (releases_own) {
            return original(handle);
        }
        const CUcontext unnumbered =
            CudaDriver::get()->ctx_get_id == nullptr ? named_context(handle) : nullptr;
        const ContextLifetimeLock end(ContextLifetimeLock::Mode::ending);
        const StandbyKernels::Absence no_kernel(kKernelPatienceNs);
        CUresult result = CUDA_SUCCESS;
        {
            const Ending ending(forget_contexts);
            result = original(handle);
        }
        if (unnumbered != nullptr && result == CUDA_SUCCESS && is_over(handle)) {
            as_possible([unnumbered] { note_end_of_context(unnumbered); });
            // A thread that asked in between has seen it alive.
            DriverWatch::instance().contexts_gone.fetch_add(1, std::memory_order_release);
        }
        return result;
    }
    static inline CUresult (*original)(Handle);
};

struct UnmapHook {
    static CUresult call(CUdeviceptr address, size_t length) {
        const Ending ending([address, length] {
            return AllocationTable::instance().forget(reinterpret_cast<void *>(address), length);
        });
        return original(address, length);
    }
    static inline CUresult (*original)(CUdeviceptr, size_t);
};

/** Page-locks what was ordinary host memory. */
template <int which>
struct RegisterHook {
    static CUresult call(void *address, size_t length, unsigned flags) {
        HostRegistrationCache::instance().make_way(address, length);
        const CUresult result = original(address, length, flags);
        KnownHostPages::instance().forget(address, length);
        return result;
    }
    static inline CUresult (*original)(void *, size_t, unsigned);
};

/** A function that waits until a GPU has nothing to do. */
template <typename... Context>
struct WaitHook {
    static CUresult call(Context... context) {
        const StandbyKernels::Absence no_kernel;
        UnfinishedCopies::Wait wait(context...);
        const CUresult result = original(context...);
        if (result == CUDA_SUCCESS) {
            wait.end();
        }
        return result;
    }
    static inline CUresult (*original)(Context...);
};

/** A kernel that needs all of a GPU. */
template <int which>
struct CooperativeHook {
    static CUresult call(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, CUstream stream, void **parameters) {
        const StandbyKernels::Absence no_kernel;
        UnfinishedCopies::instance().separate();
        return original(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                        stream, parameters);
    }
    static inline CUresult (*original)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       unsigned, unsigned, CUstream, void **);
};

/** The call is slower beside a standby kernel (doc/decisions/hooks-allocation-beside-kernel.md).
 * Ordinary memory at the address may have gone unseen, for example memory of the driver. */
struct AllocHook {
    static CUresult call(CUdeviceptr *address, size_t length) {
        const StandbyKernels::Absence no_kernel;
        const CUresult result = original(address, length);
        if (result == CUDA_SUCCESS) {
            KnownHostPages::instance().forget(reinterpret_cast<void *>(*address), length);
        }
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr *, size_t);
};

/** Makes a context or finds it. */
struct RetainHook {
    static CUresult call(CUcontext *context, CUdevice device) {
        const bool was_in_use = CudaDriver::get()->primary_context_is_active(device).value_or(true);
        const CUresult result = original(context, device);
        if (result == CUDA_SUCCESS) {
            as_possible([&] { note_retained(device, *context, was_in_use); });
        }
        return result;
    }
    static inline CUresult (*original)(CUcontext *, CUdevice);
};

/** What ends a context, and with it its memory. */
Hooks context_hooks() {
    return joined({
        hooks_of<ContextHook, CUcontext>("cuCtxDestroy", "cuCtxDestroy_v2", "cuCtxDetach"),
        hooks_of<ContextHook, void *>("cuGreenCtxDestroy"),
        hooks_of<ContextHook, CUdevice>("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
                                        "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"),
    });
}

/** Memory of pools is never remembered (query_memory()), but cuMemFreeAsync also frees other
 * memory. */
Hooks memory_hooks() {
    return joined({
        hooks_of<FreeHook, CUdeviceptr>("cuMemFree_v2", "cuIpcCloseMemHandle"),
        hooks_of<FreeHook, void *>("cuMemFreeHost", "cuMemHostUnregister"),
        hooks_of<FreeAsyncHook>("cuMemFreeAsync", "cuMemFreeAsync_ptsz"),
        {hook<UnmapHook>("cuMemUnmap"), hook<UnloadHook<CUmodule>>("cuModuleUnload"),
         hook<UnloadHook<void *>>("cuLibraryUnload")},
    });
}

/** For the standby kernel. Without these hooks nothing goes wrong. */
Hooks standby_hooks() {
    return joined({
        {hook<RetainHook>("cuDevicePrimaryCtxRetain"), hook<WaitHook<>>("cuCtxSynchronize"),
         hook<WaitHook<CUcontext>>("cuCtxSynchronize_v2"),  // CUDA 13
         hook<AllocHook>("cuMemAlloc_v2")},
        hooks_of<CooperativeHook>("cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"),
    });
}

/** Gives up. Functions that are hooked already only pass their calls on. */
bool give_up(const char *symbol, const char *why) {
    GPUSHM_LOG(debug, "%s %s: the driver is asked for the kind of memory in each message", symbol,
               why);
    return false;
}

bool free_reaches_hook() {
    proving = true;
    proved = false;
    CudaDriver::get()->mem_free(0);
    proving = false;
    return proved;
}

bool install(PatchFunction patch) {
    if (CudaDriver::get() == nullptr) {
        return false;
    }
    const char *missed = install_all_hooks(patch, memory_hooks());
    if (missed != nullptr) {
        return give_up(missed, "cannot be hooked, or not all versions of it");
    }
    if (!watch_contexts(patch)) {
        return give_up("cuCtxDestroy", "cannot be hooked, or not all of its kin");
    }
    watch_host_memory(patch);
    if (!DriverWatch::instance().registrations.load(std::memory_order_acquire)) {
        return give_up("cuMemHostRegister", "cannot be hooked, or not all versions of it");
    }
    return free_reaches_hook() || give_up("cuMemFree", "does not reach its hook");
}

}  // namespace

bool watch_contexts(PatchFunction patch) {
    static std::once_flag once;
    std::call_once(once, [patch] {
        DriverWatch::instance().contexts.store(
            CudaDriver::get() != nullptr && install_all_hooks(patch, context_hooks()) == nullptr,
            std::memory_order_release);
    });
    return contexts_are_watched();
}

bool watch_host_memory(PatchFunction patch) {
    static std::once_flag once;
    std::call_once(once, [patch] {
        if (CudaDriver::get() == nullptr) {
            return;
        }
        const char *registration = install_all_hooks(
            patch, hooks_of<RegisterHook>("cuMemHostRegister", "cuMemHostRegister_v2"));
        const char *copy = install_all_hooks(patch, copy_hooks());
        DriverWatch::instance().registrations.store(registration == nullptr,
                                                    std::memory_order_release);
        DriverWatch::instance().copies.store(copy == nullptr, std::memory_order_release);
        if (!host_memory_is_watched()) {
            GPUSHM_LOG(debug,
                       "%s cannot be hooked: the application's host memory is not page-locked, "
                       "large copies from "
                       "and to it are slower",
                       registration != nullptr ? registration : copy);
        }
    });
    return host_memory_is_watched();
}

bool watch_early_returns(PatchFunction patch) {
    static std::once_flag once;
    std::call_once(once, [patch] {
        if (!driver_hooks_installed() ||
            !DriverWatch::instance().copies.load(std::memory_order_acquire)) {
            return;
        }
        const char *missed = install_all_hooks(patch, early_return_hooks());
        missed = missed == nullptr ? install_hooks(patch, launch_hooks()) : missed;
        if (missed != nullptr || !stream_captures_are_known()) {
            GPUSHM_LOG(debug,
                       "%s cannot be hooked, or not all versions of it: copies and memsets of the "
                       "application on "
                       "GPU memory that messages have met wait until they are done",
                       missed != nullptr ? missed : "cuStreamBeginCapture");
            return;
        }
        install_hooks(patch, other_separating_hooks());
        DriverWatch::instance().early_returns.store(true, std::memory_order_release);
        // Calls that the program made before the hooks are not noted. Without cuInit it made none.
        int count = 0;
        if (CudaDriver::get()->device_get_count(&count) == CUDA_SUCCESS) {
            UnfinishedCopies::instance().note(UnfinishedCopies::Stream::legacy, {}, base_of_met);
        }
    });
    return early_returns_are_noted();
}

bool install_driver_hooks(PatchFunction patch, void (*freed)(const MemoryInfo &allocation)) {
    static std::once_flag once;
    std::call_once(once, [patch, freed] {
        freed_listener = freed;
        DriverWatch::instance().allocations.store(install(patch), std::memory_order_release);
        if (!driver_hooks_installed()) {
            return;
        }
        DriverWatch::instance().waits.store(install_all_hooks(patch, standby_hooks()) == nullptr,
                                            std::memory_order_release);
    });
    return driver_hooks_installed();
}

}  // namespace gpushm
