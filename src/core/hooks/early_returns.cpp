// SPDX-License-Identifier: BSD-3-Clause
#include "core/hooks/early_returns.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/unfinished_copies.hpp"
#include "core/hooks/row_ranges.hpp"
#include "core/memory/met_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {
namespace {

using Stream = UnfinishedCopies::Stream;

bool is_to_be_noted(CUresult result) {
    return result == CUDA_SUCCESS && early_returns_are_noted() && !OwnCopies::under_way();
}

const void *pointer(CUdeviceptr address) {
    return reinterpret_cast<const void *>(address);
}

// touched_by() takes the arguments of a function of the driver.

TouchedBytes touched_by(CUdeviceptr destination, CUdeviceptr source, size_t length) {
    return {{pointer(destination), length}, {pointer(source), length}};
}
// An array is no memory of a message; the other side may be.
TouchedBytes touched_by(CUarray, size_t, CUdeviceptr source, size_t length) {
    return {{}, {pointer(source), length}};
}
TouchedBytes touched_by(CUdeviceptr destination, CUarray, size_t, size_t length) {
    return {{pointer(destination), length}, {}};
}
/** cuMemsetD8 and its like. */
template <typename Value>
TouchedBytes touched_by(CUdeviceptr address, Value /*value*/, size_t count) {
    return {{pointer(address), count * sizeof(Value)}, {}};
}
/** cuMemsetD2D8 and its like; `width` counts values. */
template <typename Value>
TouchedBytes touched_by(CUdeviceptr address, size_t pitch, Value /*value*/, size_t width,
                        size_t height) {
    return {range_of_rows(pointer(address), pitch, 0, height - 1, 0,
                          height == 0 ? 0 : width * sizeof(Value)),
            {}};
}

/** `which`: odd where the null stream is that of the thread. */
template <int which, typename... Arguments>
struct EarlyReturnHook {
    static CUresult call(Arguments... arguments) {
        const CUresult result = original(arguments...);
        note_early_return(result, touched_by(arguments...), which % 2 == 1);
        return result;
    }
    static inline CUresult (*original)(Arguments...);
};

/** A copy is in a context of either side, too, and after all that there is in it. Null: the side is
 * an array. */
void note_peer_copy(CUresult result, const TouchedBytes &touched, CUcontext destination,
                    CUcontext source, bool of_thread) {
    for (const CUcontext context : {destination, source}) {
        if (is_to_be_noted(result) && context != nullptr) {
            UnfinishedCopies::instance().note(Stream::legacy, touched, base_of_met, context);
        }
    }
    note_early_return(result, touched, of_thread);
}

template <int which>
struct PeerCopyHook {
    static CUresult call(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                         CUcontext source_context, size_t length) {
        const CUresult result =
            original(destination, destination_context, source, source_context, length);
        note_peer_copy(result, touched_by(destination, source, length), destination_context,
                       source_context, which == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
};

template <int which>
struct PeerRowsHook {
    static CUresult call(const CUDA_MEMCPY3D_PEER *rows) {
        const CUresult result = original(rows);
        if (result == CUDA_SUCCESS) {
            note_peer_copy(result, touched_bytes(*rows, Sides::of_any_memory),
                           context_of(rows->dstMemoryType, rows->dstContext),
                           context_of(rows->srcMemoryType, rows->srcContext), which == 1);
        }
        return result;
    }
    static CUcontext context_of(CUmemorytype type, CUcontext context) {
        return type == CU_MEMORYTYPE_ARRAY ? nullptr : context;
    }
    static inline CUresult (*original)(const CUDA_MEMCPY3D_PEER *);
};

template <int which, typename... Arguments>
struct StartHook {
    static CUresult call(Arguments... arguments) {
        UnfinishedCopies::instance().separate();
        return original(arguments...);
    }
    static inline CUresult (*original)(Arguments...);
};

/** Counts launches (application_launches()). */
template <int which, typename... Arguments>
struct LaunchHook {
    static CUresult call(Arguments... arguments) {
        if (!OwnCopies::under_way()) {
            DriverWatch::instance().note_launch();
        }
        UnfinishedCopies::instance().separate();
        return original(arguments...);
    }
    static inline CUresult (*original)(Arguments...);
};

template <int which>
struct StreamWaitHook {
    static CUresult call(CUstream stream) {
        const bool is_null = stream == nullptr;
        if (OwnCopies::under_way()) {
            return original(stream);
        }
        if (stream == CU_STREAM_LEGACY || (is_null && which == 0)) {
            return wait(stream, Stream::legacy);
        }
        return stream == CU_STREAM_PER_THREAD || is_null ? wait(stream, Stream::of_thread)
                                                         : original(stream);
    }
    static CUresult wait(CUstream stream, Stream meant) {
        UnfinishedCopies::Wait wait(nullptr, meant);
        const CUresult result = original(stream);
        if (result == CUDA_SUCCESS) {
            wait.end();
        }
        return result;
    }
    static inline CUresult (*original)(CUstream);
};

}  // namespace

void note_early_return(CUresult result, const TouchedBytes &touched, bool of_thread) {
    if (is_to_be_noted(result)) {
        UnfinishedCopies::instance().note(of_thread ? Stream::of_thread : Stream::legacy, touched,
                                          base_of_met);
    }
}

Hooks early_return_hooks() {
    return joined({
        hooks_of<EarlyReturnHook, CUdeviceptr, CUdeviceptr, size_t>("cuMemcpyDtoD_v2",
                                                                    "cuMemcpyDtoD_v2_ptds"),
        hooks_of<PeerCopyHook>("cuMemcpyPeer", "cuMemcpyPeer_ptds"),
        hooks_of<PeerRowsHook>("cuMemcpy3DPeer", "cuMemcpy3DPeer_ptds"),
        hooks_of<EarlyReturnHook, CUarray, size_t, CUdeviceptr, size_t>("cuMemcpyDtoA_v2",
                                                                        "cuMemcpyDtoA_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, CUarray, size_t, size_t>("cuMemcpyAtoD_v2",
                                                                        "cuMemcpyAtoD_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, unsigned char, size_t>("cuMemsetD8_v2",
                                                                      "cuMemsetD8_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, unsigned short, size_t>("cuMemsetD16_v2",
                                                                       "cuMemsetD16_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, unsigned, size_t>("cuMemsetD32_v2",
                                                                 "cuMemsetD32_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, size_t, unsigned char, size_t, size_t>(
            "cuMemsetD2D8_v2", "cuMemsetD2D8_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, size_t, unsigned short, size_t, size_t>(
            "cuMemsetD2D16_v2", "cuMemsetD2D16_v2_ptds"),
        hooks_of<EarlyReturnHook, CUdeviceptr, size_t, unsigned, size_t, size_t>(
            "cuMemsetD2D32_v2", "cuMemsetD2D32_v2_ptds"),
    });
}

Hooks launch_hooks() {
    return hooks_of<LaunchHook, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                    unsigned, unsigned, CUstream, void **, void **>("cuLaunchKernel",
                                                                    "cuLaunchKernel_ptsz");
}

Hooks other_separating_hooks() {
    return joined({
        // CUlaunchConfig, its first argument, came with CUDA 11.8.
        hooks_of<LaunchHook, const void *, CUfunction, void **, void **>("cuLaunchKernelEx",
                                                                         "cuLaunchKernelEx_ptsz"),
        hooks_of<LaunchHook, CUgraphExec, CUstream>("cuGraphLaunch", "cuGraphLaunch_ptsz"),
        hooks_of<StartHook, CUstream, CUhostFn, void *>("cuLaunchHostFunc",
                                                        "cuLaunchHostFunc_ptsz"),
        hooks_of<StartHook, CUstream, CUevent, unsigned>("cuStreamWaitEvent",
                                                         "cuStreamWaitEvent_ptsz"),
        hooks_of<StreamWaitHook>("cuStreamSynchronize", "cuStreamSynchronize_ptsz"),
        hooks_of<StartHook, CUstream, CUdeviceptr, cuuint32_t, unsigned>(
            "cuStreamWaitValue32_v2", "cuStreamWaitValue32_v2_ptsz", "cuStreamWaitValue32",
            "cuStreamWaitValue32_ptsz"),
        hooks_of<StartHook, CUstream, CUdeviceptr, cuuint64_t, unsigned>(
            "cuStreamWaitValue64_v2", "cuStreamWaitValue64_v2_ptsz", "cuStreamWaitValue64",
            "cuStreamWaitValue64_ptsz"),
        hooks_of<StartHook, CUstream, unsigned, void *, unsigned>(
            "cuStreamBatchMemOp_v2", "cuStreamBatchMemOp_v2_ptsz", "cuStreamBatchMemOp",
            "cuStreamBatchMemOp_ptsz"),
        hooks_of<StartHook, CUstream, CUstreamCallback, void *, unsigned>(
            "cuStreamAddCallback", "cuStreamAddCallback_ptsz"),
        hooks_of<StartHook, const void *, const void *, unsigned, CUstream>(
            "cuWaitExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync_ptsz"),
    });
}

}  // namespace gpushm
