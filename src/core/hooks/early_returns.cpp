// SPDX-License-Identifier: BSD-3-Clause
#include "core/hooks/early_returns.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/allocation_table.hpp"

#include <algorithm>

namespace gpushm {
namespace {

using Scope = UnfinishedCopies::Scope;
using Stream = UnfinishedCopies::Stream;

Scope scope_of(std::initializer_list<const void *> addresses) {
    const bool is_met = std::any_of(addresses.begin(), addresses.end(), [](const void *address) {
        MemoryInfo info;
        return address != nullptr && AllocationTable::instance().find(address, &info);
    });
    return is_met ? Scope::met : Scope::all;
}

Stream stream_of(bool of_thread) { return of_thread ? Stream::of_thread : Stream::legacy; }

const void *pointer(CUdeviceptr address) { return reinterpret_cast<const void *>(address); }

/** `which`: 1 where the null stream is that of the thread. */
template <int which, typename... Arguments>
struct MemsetHook {
    static CUresult call(CUdeviceptr destination, Arguments... arguments) {
        const CUresult result = original(destination, arguments...);
        note_early_return(result, {pointer(destination)}, which % 2 == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, Arguments...);
};

template <int which>
struct DeviceCopyHook {
    static CUresult call(CUdeviceptr destination, CUdeviceptr source, size_t length) {
        const CUresult result = original(destination, source, length);
        note_early_return(result, {pointer(destination), pointer(source)}, which == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, CUdeviceptr, size_t);
};

/** In both contexts, and after all that there is in either. */
void note_peer_copy(CUresult result, CUcontext destination_context, const void *destination, CUcontext source_context,
                    const void *source) {
    if (result == CUDA_SUCCESS && !OwnCopies::under_way()) {
        const Scope scope = scope_of({destination, source});
        for (const CUcontext context : {destination_context, source_context}) {
            if (context != nullptr) {
                UnfinishedCopies::instance().note(scope, Stream::legacy, context);
            }
        }
    }
}

template <int which>
struct PeerCopyHook {
    static CUresult call(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                         CUcontext source_context, size_t length) {
        const CUresult result = original(destination, destination_context, source, source_context, length);
        note_peer_copy(result, destination_context, pointer(destination), source_context, pointer(source));
        note_early_return(result, {pointer(destination), pointer(source)}, which == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
};

template <int which>
struct PeerRowsHook {
    static CUresult call(const CUDA_MEMCPY3D_PEER *rows) {
        const CUresult result = original(rows);
        if (result == CUDA_SUCCESS) {
            note_peer_copy(result, rows->dstContext, pointer(rows->dstDevice), rows->srcContext,
                           pointer(rows->srcDevice));
            note_early_return(result, {pointer(rows->dstDevice), pointer(rows->srcDevice)}, which == 1);
        }
        return result;
    }
    static inline CUresult (*original)(const CUDA_MEMCPY3D_PEER *);
};

/** An array is no memory of a message; the other side may be. */
template <int which>
struct ToArrayHook {
    static CUresult call(CUarray destination, size_t offset, CUdeviceptr source, size_t length) {
        const CUresult result = original(destination, offset, source, length);
        note_early_return(result, {pointer(source)}, which == 1);
        return result;
    }
    static inline CUresult (*original)(CUarray, size_t, CUdeviceptr, size_t);
};

template <int which>
struct FromArrayHook {
    static CUresult call(CUdeviceptr destination, CUarray source, size_t offset, size_t length) {
        const CUresult result = original(destination, source, offset, length);
        note_early_return(result, {pointer(destination)}, which == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, CUarray, size_t, size_t);
};

template <int which, typename First, typename... Arguments>
struct StartHook {
    static CUresult call(First first, Arguments... arguments) {
        UnfinishedCopies::instance().separate();
        return original(first, arguments...);
    }
    static inline CUresult (*original)(First, Arguments...);
};

template <int which>
struct StreamWaitHook {
    static CUresult call(CUstream stream) {
        const bool is_null = stream == nullptr;
        if (stream == CU_STREAM_LEGACY || (is_null && which == 0)) {
            return wait(stream, Stream::legacy);
        }
        return stream == CU_STREAM_PER_THREAD || is_null ? wait(stream, Stream::of_thread) : original(stream);
    }
    static CUresult wait(CUstream stream, Stream meant) {
        UnfinishedCopies::Wait wait(meant);
        const CUresult result = original(stream);
        if (result == CUDA_SUCCESS) {
            wait.end();
        }
        return result;
    }
    static inline CUresult (*original)(CUstream);
};

template <int which>
using LaunchHook = StartHook<which, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void **, void **>;
template <int which>  // its CUlaunchConfig came with CUDA 11.8
using LaunchExHook = StartHook<which, const CUlaunchConfig *, CUfunction, void **, void **>;
template <int which>
using GraphHook = StartHook<which, CUgraphExec, CUstream>;
template <int which>
using HostFunctionHook = StartHook<which, CUstream, CUhostFn, void *>;
template <int which>
using EventHook = StartHook<which, CUstream, CUevent, unsigned>;
template <int which, typename Value>
using ValueHook = StartHook<which, CUstream, CUdeviceptr, Value, unsigned>;

}  // namespace

void note_early_return(CUresult result, std::initializer_list<const void *> addresses, bool of_thread) {
    if (result == CUDA_SUCCESS && !OwnCopies::under_way()) {
        UnfinishedCopies::instance().note(scope_of(addresses), stream_of(of_thread));
    }
}

const std::vector<Hook> &early_return_hooks() {
    static const std::vector<Hook> hooks = {
        hook<DeviceCopyHook<0>>("cuMemcpyDtoD_v2", "cuMemcpyDtoD"),
        hook<DeviceCopyHook<1>>("cuMemcpyDtoD_v2_ptds", "cuMemcpyDtoD"),
        hook<PeerCopyHook<0>>("cuMemcpyPeer", "cuMemcpyPeer"),
        hook<PeerCopyHook<1>>("cuMemcpyPeer_ptds", "cuMemcpyPeer"),
        hook<PeerRowsHook<0>>("cuMemcpy3DPeer", "cuMemcpy3DPeer"),
        hook<PeerRowsHook<1>>("cuMemcpy3DPeer_ptds", "cuMemcpy3DPeer"),
        hook<ToArrayHook<0>>("cuMemcpyDtoA_v2", "cuMemcpyDtoA"),
        hook<ToArrayHook<1>>("cuMemcpyDtoA_v2_ptds", "cuMemcpyDtoA"),
        hook<FromArrayHook<0>>("cuMemcpyAtoD_v2", "cuMemcpyAtoD"),
        hook<FromArrayHook<1>>("cuMemcpyAtoD_v2_ptds", "cuMemcpyAtoD"),
        hook<MemsetHook<0, unsigned char, size_t>>("cuMemsetD8_v2", "cuMemsetD8"),
        hook<MemsetHook<1, unsigned char, size_t>>("cuMemsetD8_v2_ptds", "cuMemsetD8"),
        hook<MemsetHook<0, unsigned short, size_t>>("cuMemsetD16_v2", "cuMemsetD16"),
        hook<MemsetHook<1, unsigned short, size_t>>("cuMemsetD16_v2_ptds", "cuMemsetD16"),
        hook<MemsetHook<0, unsigned, size_t>>("cuMemsetD32_v2", "cuMemsetD32"),
        hook<MemsetHook<1, unsigned, size_t>>("cuMemsetD32_v2_ptds", "cuMemsetD32"),
        hook<MemsetHook<0, size_t, unsigned char, size_t, size_t>>("cuMemsetD2D8_v2", "cuMemsetD2D8"),
        hook<MemsetHook<1, size_t, unsigned char, size_t, size_t>>("cuMemsetD2D8_v2_ptds", "cuMemsetD2D8"),
        hook<MemsetHook<0, size_t, unsigned short, size_t, size_t>>("cuMemsetD2D16_v2", "cuMemsetD2D16"),
        hook<MemsetHook<1, size_t, unsigned short, size_t, size_t>>("cuMemsetD2D16_v2_ptds", "cuMemsetD2D16"),
        hook<MemsetHook<0, size_t, unsigned, size_t, size_t>>("cuMemsetD2D32_v2", "cuMemsetD2D32"),
        hook<MemsetHook<1, size_t, unsigned, size_t, size_t>>("cuMemsetD2D32_v2_ptds", "cuMemsetD2D32"),
    };
    return hooks;
}

const std::vector<Hook> &separating_hooks() {
    static const std::vector<Hook> hooks = {
        hook<LaunchHook<0>>("cuLaunchKernel", "cuLaunchKernel"),
        hook<LaunchHook<1>>("cuLaunchKernel_ptsz", "cuLaunchKernel"),
        hook<LaunchExHook<0>>("cuLaunchKernelEx", "cuLaunchKernelEx"),
        hook<LaunchExHook<1>>("cuLaunchKernelEx_ptsz", "cuLaunchKernelEx"),
        hook<GraphHook<0>>("cuGraphLaunch", "cuGraphLaunch"),
        hook<GraphHook<1>>("cuGraphLaunch_ptsz", "cuGraphLaunch"),
        hook<HostFunctionHook<0>>("cuLaunchHostFunc", "cuLaunchHostFunc"),
        hook<HostFunctionHook<1>>("cuLaunchHostFunc_ptsz", "cuLaunchHostFunc"),
        hook<EventHook<0>>("cuStreamWaitEvent", "cuStreamWaitEvent"),
        hook<EventHook<1>>("cuStreamWaitEvent_ptsz", "cuStreamWaitEvent"),
        hook<ValueHook<0, cuuint32_t>>("cuStreamWaitValue32_v2", "cuStreamWaitValue32"),
        hook<ValueHook<1, cuuint32_t>>("cuStreamWaitValue32_v2_ptsz", "cuStreamWaitValue32"),
        hook<ValueHook<0, cuuint64_t>>("cuStreamWaitValue64_v2", "cuStreamWaitValue64"),
        hook<ValueHook<1, cuuint64_t>>("cuStreamWaitValue64_v2_ptsz", "cuStreamWaitValue64"),
        hook<StreamWaitHook<0>>("cuStreamSynchronize", "cuStreamSynchronize"),
        hook<StreamWaitHook<1>>("cuStreamSynchronize_ptsz", "cuStreamSynchronize"),
    };
    return hooks;
}

}  // namespace gpushm
