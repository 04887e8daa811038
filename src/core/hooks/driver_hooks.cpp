// SPDX-License-Identifier: BSD-3-Clause
// Of memory only what takes it away is hooked: an allocation enters the table when a message first meets
// it and the driver is asked, be it older than the hooks or not.
#include "core/hooks/driver_hooks.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_patch.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/ended_contexts.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/memory/host_pages.hpp"
#include "core/pinning/host_pins.hpp"
#include "core/reclaim/context_preparation.hpp"
#include "core/reclaim/idle_context.hpp"
#include "core/standby/standby_kernel.hpp"

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
    for (const auto &[base, allocation] : gone) {
        (void)base;
        if (freed_listener != nullptr) {
            as_possible([&told = allocation] { freed_listener(told); });
        }
    }
}

/** Around a call that ends allocations, which waits for all kernels. They are forgotten before it, so
 *  that nobody believes in them when the address becomes something else, and again after it, for
 *  whoever asked the driver in between has seen them alive. */
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

Allocations forget_all() { return AllocationTable::instance().forget_all(); }

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

/** What came from cuMemAlloc may be freed so, too. Memory of pools is not known here, and nothing waits: not
 *  for kernels either. */
template <int which>
struct FreeAsyncHook {
    static CUresult call(CUdeviceptr address, CUstream stream) {
        forget(address);
        const CUresult result = original(address, stream);
        forget(address);  // who asked in between has seen it alive
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

/** One that may end any number of them: the memory of a context, the variables of a module. */
template <int which, typename Handle, Allocations (*forget)()>
struct OwnerHook {
    static CUresult call(Handle handle) {
        const Ending ending(forget);
        return original(handle);
    }
    static inline CUresult (*original)(Handle);
};

/** The context that a call to end one names, if it is there. */
CUcontext named_context(CUcontext context) { return context; }
CUcontext named_context(void * /*green*/) { return nullptr; }  // drivers that have those number contexts
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

/** Whether it has ended, if the call did not fail. */
bool is_over(CUcontext /*context*/) { return true; }
bool is_over(void * /*green*/) { return true; }
bool is_over(CUdevice device) { return !CudaDriver::get()->primary_context_is_active(device).value_or(false); }

/** One that may end a context, and with it the page-lock of memory that kernels of other contexts read. */
template <int which, typename Handle>
struct ContextHook {
    static CUresult call(Handle handle) {
        constexpr uint64_t kKernelPatienceNs = 10'000'000;
        if (releases_own) {
            return original(handle);
        }
        const CUcontext unnumbered = CudaDriver::get()->ctx_get_id == nullptr ? named_context(handle) : nullptr;
        const EndOfContext end;
        const StandbyKernels::Absence no_kernel(kKernelPatienceNs);
        const CUresult result = Owner::call(handle);
        if (unnumbered != nullptr && result == CUDA_SUCCESS && is_over(handle)) {
            as_possible([unnumbered] { note_end_of_context(unnumbered); });
            // Who asked in between has seen it alive.
            DriverWatch::instance().contexts_gone.fetch_add(1, std::memory_order_release);
        }
        return result;
    }
    using Owner = OwnerHook<which, Handle, forget_contexts>;
    static inline CUresult (*&original)(Handle) = Owner::original;
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
        HostPins::instance().make_way(address, length);
        const CUresult result = original(address, length, flags);
        HostPages::instance().forget(address, length);
        return result;
    }
    static inline CUresult (*original)(void *, size_t, unsigned);
};

/** One that waits until the GPU has nothing to do, or needs all of it. */
template <int which, typename... Arguments>
struct WaitHook {
    static CUresult call(Arguments... arguments) {
        const StandbyKernels::Absence no_kernel;
        return original(arguments...);
    }
    static inline CUresult (*original)(Arguments...);
};

/** Takes 20 us longer beside a kernel (driver 580). What was ordinary memory at the address may have gone
 *  with nobody told: the driver's own, for one. */
struct AllocHook {
    static CUresult call(CUdeviceptr *address, size_t length) {
        const StandbyKernels::Absence no_kernel;
        const CUresult result = original(address, length);
        if (result == CUDA_SUCCESS) {
            HostPages::instance().forget(reinterpret_cast<void *>(*address), length);
        }
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr *, size_t);
};

const void *pointer_to(const void *address) { return address; }
const void *pointer_to(CUdeviceptr address) { return reinterpret_cast<const void *>(address); }

template <typename Address>
Address behind(Address address, size_t length) {
    if constexpr (std::is_pointer_v<Address>) {
        return static_cast<char *>(const_cast<void *>(address)) + length;
    } else {
        return address + length;
    }
}

CUstream stream_of_copy(CUstream stream, bool of_thread) {
    return stream == nullptr && of_thread ? CU_STREAM_PER_THREAD : stream;
}

/** Nothing is copied yet, but whenever the graph runs. */
bool is_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CudaDriver *driver = CudaDriver::get();
    return driver->stream_is_capturing == nullptr || driver->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct CopySides {
    HostPins::ApplicationCopy::Side destination;
    HostPins::ApplicationCopy::Side source;
};

/** Whether we have page-locked some of either side. */
bool touches_locked(const CopySides &sides) {
    const auto has_locked = [](const HostPins::ApplicationCopy::Side &side) {
        return HostPins::instance().has_locked(side.address, side.length);
    };
    return has_locked(sides.destination) || has_locked(sides.source);
}

/** What the application finds when an asynchronous copy of pageable memory returns: its source has been read, or
 *  all of it is over (CUDA driver API manual, "API synchronization behavior"). Not so of memory that is page-locked,
 *  of which the application does not know. */
CUresult end_copy(const CopySides &sides, CUstream stream, bool of_thread) {
    const CUstream copied_by = stream_of_copy(stream, of_thread);
    if (is_captured(copied_by)) {
        HostPins::instance().keep(sides.destination.address, sides.destination.length);
        HostPins::instance().keep(sides.source.address, sides.source.length);
        return CUDA_SUCCESS;
    }
    const RelaxedCapture relaxed(CudaDriver::get());
    return CudaDriver::get()->stream_synchronize(copied_by);
}

/** A synchronous one is over. */
CUresult end_copy(const CopySides & /*sides*/, bool /*of_thread*/) { return CUDA_SUCCESS; }

/** A source that we have locked, as pageable memory, where the driver reads such at once, without waiting for what is
 *  in the stream (CUDA C++ Programming Guide, "Asynchronous Concurrent Execution"): that may be a kernel that waits for
 *  a message of this thread. Else nothing. */
std::vector<char> take_at_once(const HostPins::ApplicationCopy::Side &source, CUstream stream, bool of_thread) {
    constexpr size_t kMostBytes = 64 << 10;
    if (source.length > kMostBytes || !HostPins::instance().has_locked(source.address, source.length) ||
        is_captured(stream_of_copy(stream, of_thread))) {
        return {};
    }
    std::vector<char> taken;
    const char *begin = static_cast<const char *>(source.address);
    as_possible([&] { taken.assign(begin, begin + source.length); });  // else the copy waits for the stream
    return taken;
}

/** A synchronous copy waits for the stream anyway. */
std::vector<char> take_at_once(const HostPins::ApplicationCopy::Side & /*source*/, bool /*of_thread*/) { return {}; }

/** A copy between buffers of the application, of which we may have page-locked a part: it is done in pieces that the
 *  driver takes (HostPins::length_of_one_copy()). `which`: 1 where the null stream is that of the thread. */
template <int which, typename Destination, typename Source, typename... Stream>
struct CopyHook {
    static CUresult call(Destination destination, Source source, size_t length, Stream... stream) {
        if (OwnCopies::under_way()) {  // they hold what they need
            return copy(destination, source, length, stream...);
        }
        const std::vector<char> taken = take_at_once({pointer_to(source), length}, stream..., which == 1);
        if (!taken.empty()) {
            source = (Source)taken.data();
        }
        const CopySides sides = {{pointer_to(destination), length}, {pointer_to(source), length}};
        const HostPins::ApplicationCopy under_way(HostPins::instance(), sides.destination, sides.source);
        const CUresult result = copy(destination, source, length, stream...);
        // Asked afterwards, for another thread may have locked it before the driver looked.
        return result == CUDA_SUCCESS && touches_locked(sides) ? end_copy(sides, stream..., which == 1) : result;
    }
    static size_t length_of_part(Destination destination, Source source, size_t length) {
        const HostPins &pins = HostPins::instance();
        return pins.length_of_one_copy(pointer_to(destination), pins.length_of_one_copy(pointer_to(source), length));
    }
    static CUresult copy(Destination destination, Source source, size_t length, Stream... stream) {
        for (;;) {
            const size_t part = length_of_part(destination, source, length);
            const CUresult result = original(destination, source, part, stream...);
            if (result == CUDA_ERROR_INVALID_VALUE && length_of_part(destination, source, length) < part) {
                continue;  // another thread has locked some of it just now
            }
            if (result != CUDA_SUCCESS || part == length) {
                return result;
            }
            destination = behind(destination, part);
            source = behind(source, part);
            length -= part;
        }
    }
    static inline CUresult (*original)(Destination, Source, size_t, Stream...);
};

/** Where none is said, one row is behind the other. */
size_t pitch_of(size_t said, size_t width) { return said == 0 ? width : said; }

/** One side of a copy of rows, as CUDA_MEMCPY2D and 3D say it: from the first byte to the last, if it may be host
 *  memory. */
HostPins::ApplicationCopy::Side side_of_rows(CUmemorytype type, const void *host, CUdeviceptr unified, size_t pitch,
                                             size_t first_row, size_t last_row, size_t x, size_t width) {
    const char *base = static_cast<const char *>(type == CU_MEMORYTYPE_HOST      ? host
                                                 : type == CU_MEMORYTYPE_UNIFIED ? pointer_to(unified)
                                                                                 : nullptr);
    return base == nullptr || width == 0
               ? HostPins::ApplicationCopy::Side{nullptr, 0}
               : HostPins::ApplicationCopy::Side{base + first_row * pitch_of(pitch, width) + x,
                                                 (last_row - first_row) * pitch_of(pitch, width) + width};
}

CopySides sides_of(const CUDA_MEMCPY2D &rows) {
    const size_t last = rows.Height - 1;
    const size_t width = rows.Height == 0 ? 0 : rows.WidthInBytes;
    return {side_of_rows(rows.dstMemoryType, rows.dstHost, rows.dstDevice, rows.dstPitch, rows.dstY, rows.dstY + last,
                         rows.dstXInBytes, width),
            side_of_rows(rows.srcMemoryType, rows.srcHost, rows.srcDevice, rows.srcPitch, rows.srcY, rows.srcY + last,
                         rows.srcXInBytes, width)};
}

CopySides sides_of(const CUDA_MEMCPY3D &rows) {
    const auto row = [](size_t z, size_t height, size_t y) { return z * height + y; };
    const size_t last_z = rows.Depth - 1;
    const size_t last_y = rows.Height - 1;
    const size_t width = rows.Height == 0 || rows.Depth == 0 ? 0 : rows.WidthInBytes;
    return {side_of_rows(rows.dstMemoryType, rows.dstHost, rows.dstDevice, rows.dstPitch,
                         row(rows.dstZ, rows.dstHeight, rows.dstY),
                         row(rows.dstZ + last_z, rows.dstHeight, rows.dstY + last_y), rows.dstXInBytes, width),
            side_of_rows(rows.srcMemoryType, rows.srcHost, rows.srcDevice, rows.srcPitch,
                         row(rows.srcZ, rows.srcHeight, rows.srcY),
                         row(rows.srcZ + last_z, rows.srcHeight, rows.srcY + last_y), rows.srcXInBytes, width)};
}

/** Of two parts the first: a power of two, which divides a row of an array between its elements. */
size_t first_part(size_t count) {
    size_t part = 1;
    while (2 * part < count) {
        part *= 2;
    }
    return part;
}

/** Divides them in one dimension. */
template <typename Rows>
void divide(Rows *rows, Rows *rest, size_t Rows::*count, size_t Rows::*source, size_t Rows::*destination) {
    rows->*count = first_part(rows->*count);
    rest->*count -= rows->*count;
    rest->*source += rows->*count;
    rest->*destination += rows->*count;
}

/** Makes `*rows` their first part, `*rest` the others; false when they are a single byte. */
template <typename Rows>
bool divide(Rows *rows, Rows *rest) {
    rows->srcPitch = pitch_of(rows->srcPitch, rows->WidthInBytes);
    rows->dstPitch = pitch_of(rows->dstPitch, rows->WidthInBytes);
    *rest = *rows;
    if constexpr (std::is_same_v<Rows, CUDA_MEMCPY3D>) {
        if (rows->Depth > 1) {
            divide(rows, rest, &Rows::Depth, &Rows::srcZ, &Rows::dstZ);
            return true;
        }
    }
    if (rows->Height > 1) {
        divide(rows, rest, &Rows::Height, &Rows::srcY, &Rows::dstY);
        return true;
    }
    divide(rows, rest, &Rows::WidthInBytes, &Rows::srcXInBytes, &Rows::dstXInBytes);
    return rest->WidthInBytes != 0;
}

/** As CopyHook. */
template <int which, typename Rows, typename... Stream>
struct RowsHook {
    static CUresult call(const Rows *rows, Stream... stream) {
        if (rows == nullptr || OwnCopies::under_way()) {
            return original(rows, stream...);
        }
        const CopySides sides = sides_of(*rows);
        const HostPins::ApplicationCopy under_way(HostPins::instance(), sides.destination, sides.source);
        const CUresult result = copy(*rows, stream...);
        return result == CUDA_SUCCESS && touches_locked(sides) ? end_copy(sides, stream..., which == 1) : result;
    }
    /** In parts of parts, until the driver takes them, if it does not take the whole: a row may leave what we have
     *  locked. */
    static CUresult copy(Rows rows, Stream... stream) {
        const CUresult result = original(&rows, stream...);
        Rows rest = {};
        if (result != CUDA_ERROR_INVALID_VALUE || !touches_locked(sides_of(rows)) || !divide(&rows, &rest)) {
            return result;
        }
        const CUresult first = copy(rows, stream...);
        return first == CUDA_SUCCESS ? copy(rest, stream...) : first;
    }
    static inline CUresult (*original)(const Rows *, Stream...);
};

/** Makes a context, or finds it made. */
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
const std::vector<Hook> &context_hooks() {
    static const std::vector<Hook> hooks = {
        hook<ContextHook<2, CUcontext>>("cuCtxDestroy", "cuCtxDestroy"),
        hook<ContextHook<3, CUcontext>>("cuCtxDestroy_v2", "cuCtxDestroy"),
        hook<ContextHook<4, CUcontext>>("cuCtxDetach", "cuCtxDetach"),
        hook<ContextHook<5, void *>>("cuGreenCtxDestroy", "cuGreenCtxDestroy"),
        hook<ContextHook<6, CUdevice>>("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease"),
        hook<ContextHook<7, CUdevice>>("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"),
        hook<ContextHook<8, CUdevice>>("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset"),
        hook<ContextHook<9, CUdevice>>("cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset"),
    };
    return hooks;
}

/** Memory of pools is never remembered (see query_memory), but cuMemFreeAsync frees others, too. */
const std::vector<Hook> &memory_hooks() {
    static const std::vector<Hook> hooks = {
        hook<FreeHook<0, CUdeviceptr>>("cuMemFree_v2", "cuMemFree"),
        hook<FreeHook<1, CUdeviceptr>>("cuIpcCloseMemHandle", "cuIpcCloseMemHandle"),
        hook<FreeHook<2, void *>>("cuMemFreeHost", "cuMemFreeHost"),
        hook<FreeHook<3, void *>>("cuMemHostUnregister", "cuMemHostUnregister"),
        hook<FreeAsyncHook<0>>("cuMemFreeAsync", "cuMemFreeAsync"),
        hook<FreeAsyncHook<1>>("cuMemFreeAsync_ptsz", "cuMemFreeAsync"),
        hook<UnmapHook>("cuMemUnmap", "cuMemUnmap"),
        hook<OwnerHook<0, CUmodule, forget_all>>("cuModuleUnload", "cuModuleUnload"),
        hook<OwnerHook<1, void *, forget_all>>("cuLibraryUnload", "cuLibraryUnload"),
    };
    return hooks;
}

const std::vector<Hook> &registration_hooks() {
    static const std::vector<Hook> hooks = {
        hook<RegisterHook<0>>("cuMemHostRegister", "cuMemHostRegister"),
        hook<RegisterHook<1>>("cuMemHostRegister_v2", "cuMemHostRegister"),
    };
    return hooks;
}

/** For copies of the application from and to host memory that we have page-locked in part. */
const std::vector<Hook> &copy_hooks() {
    static const std::vector<Hook> hooks = {
        hook<CopyHook<0, CUdeviceptr, const void *>>("cuMemcpyHtoD_v2", "cuMemcpyHtoD"),
        hook<CopyHook<1, CUdeviceptr, const void *>>("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
        hook<CopyHook<0, CUdeviceptr, const void *, CUstream>>("cuMemcpyHtoDAsync_v2",
                                                               "cuMemcpyHtoDAsync"),
        hook<CopyHook<1, CUdeviceptr, const void *, CUstream>>("cuMemcpyHtoDAsync_v2_ptsz",
                                                               "cuMemcpyHtoDAsync"),
        hook<CopyHook<0, void *, CUdeviceptr>>("cuMemcpyDtoH_v2", "cuMemcpyDtoH"),
        hook<CopyHook<1, void *, CUdeviceptr>>("cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoH"),
        hook<CopyHook<0, void *, CUdeviceptr, CUstream>>("cuMemcpyDtoHAsync_v2",
                                                         "cuMemcpyDtoHAsync"),
        hook<CopyHook<1, void *, CUdeviceptr, CUstream>>("cuMemcpyDtoHAsync_v2_ptsz",
                                                         "cuMemcpyDtoHAsync"),
        hook<CopyHook<0, CUdeviceptr, CUdeviceptr>>("cuMemcpy", "cuMemcpy"),
        hook<CopyHook<1, CUdeviceptr, CUdeviceptr>>("cuMemcpy_ptds", "cuMemcpy"),
        hook<CopyHook<0, CUdeviceptr, CUdeviceptr, CUstream>>("cuMemcpyAsync", "cuMemcpyAsync"),
        hook<CopyHook<1, CUdeviceptr, CUdeviceptr, CUstream>>("cuMemcpyAsync_ptsz",
                                                              "cuMemcpyAsync"),
        hook<RowsHook<0, CUDA_MEMCPY2D>>("cuMemcpy2D_v2", "cuMemcpy2D"),
        hook<RowsHook<1, CUDA_MEMCPY2D>>("cuMemcpy2D_v2_ptds", "cuMemcpy2D"),
        hook<RowsHook<2, CUDA_MEMCPY2D>>("cuMemcpy2DUnaligned_v2", "cuMemcpy2DUnaligned"),
        hook<RowsHook<3, CUDA_MEMCPY2D>>("cuMemcpy2DUnaligned_v2_ptds", "cuMemcpy2DUnaligned"),
        hook<RowsHook<0, CUDA_MEMCPY2D, CUstream>>("cuMemcpy2DAsync_v2", "cuMemcpy2DAsync"),
        hook<RowsHook<1, CUDA_MEMCPY2D, CUstream>>("cuMemcpy2DAsync_v2_ptsz", "cuMemcpy2DAsync"),
        hook<RowsHook<0, CUDA_MEMCPY3D>>("cuMemcpy3D_v2", "cuMemcpy3D"),
        hook<RowsHook<1, CUDA_MEMCPY3D>>("cuMemcpy3D_v2_ptds", "cuMemcpy3D"),
        hook<RowsHook<0, CUDA_MEMCPY3D, CUstream>>("cuMemcpy3DAsync_v2", "cuMemcpy3DAsync"),
        hook<RowsHook<1, CUDA_MEMCPY3D, CUstream>>("cuMemcpy3DAsync_v2_ptsz", "cuMemcpy3DAsync"),
    };
    return hooks;
}

/** For the standby kernel. Without them nothing is wrong. */
const std::vector<Hook> &standby_hooks() {
    static const std::vector<Hook> hooks = {
        hook<RetainHook>("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"),
        hook<WaitHook<0>>("cuCtxSynchronize", "cuCtxSynchronize"),
        hook<AllocHook>("cuMemAlloc_v2", "cuMemAlloc"),
        hook<WaitHook<1, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, CUstream, void **>>("cuLaunchCooperativeKernel",
                                                    "cuLaunchCooperativeKernel"),
    };
    return hooks;
}

/** Gives it up: what is hooked already only passes its calls on. */
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
    const Hook *missed = install_all_hooks(patch, memory_hooks());
    if (missed != nullptr) {
        return give_up(missed->symbol, "cannot be hooked, or not all versions of it");
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
        DriverWatch::instance().contexts.store(CudaDriver::get() != nullptr &&
                                   install_all_hooks(patch, context_hooks()) == nullptr,
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
        const Hook *registration = install_all_hooks(patch, registration_hooks());
        const Hook *copy = install_hooks(patch, copy_hooks());
        DriverWatch::instance().registrations.store(registration == nullptr, std::memory_order_release);
        DriverWatch::instance().copies.store(copy == nullptr, std::memory_order_release);
        if (!host_memory_is_watched()) {
            GPUSHM_LOG(debug, "%s cannot be hooked: the application's host memory is not page-locked, large copies from "
                       "and to it are slower", (registration != nullptr ? registration : copy)->symbol);
        }
    });
    return host_memory_is_watched();
}

bool install_driver_hooks(PatchFunction patch, void (*freed)(const MemoryInfo &allocation)) {
    static std::once_flag once;
    std::call_once(once, [patch, freed] {
        freed_listener = freed;
        DriverWatch::instance().allocations.store(install(patch), std::memory_order_release);
        if (!driver_hooks_installed()) {
            return;
        }
        DriverWatch::instance().waits.store(install_hooks(patch, standby_hooks()) == nullptr, std::memory_order_release);
    });
    return driver_hooks_installed();
}

}  // namespace gpushm
