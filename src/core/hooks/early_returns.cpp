// SPDX-License-Identifier: BSD-3-Clause
#include "core/hooks/early_returns.hpp"

#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/hooks/row_ranges.hpp"
#include "core/memory/met_memory.hpp"

#include <cstddef>

namespace gpushm {
namespace {

using Stream = UnfinishedCopies::Stream;

Stream stream_of(bool of_thread) {
    return of_thread ? Stream::of_thread : Stream::legacy;
}

const void *pointer(CUdeviceptr address) {
    return reinterpret_cast<const void *>(address);
}

bool is_to_be_noted(CUresult result) {
    return result == CUDA_SUCCESS && early_returns_are_noted() && !OwnCopies::under_way();
}

ByteRange bytes_at(CUdeviceptr address, size_t length) {
    return {pointer(address), length};
}

/** The bytes that a memset writes, by the arguments of cuMemsetD8 and its like. */
template <typename Value>
ByteRange bytes_of_memset(CUdeviceptr address, Value /*value*/, size_t count) {
    return bytes_at(address, count * sizeof(Value));
}
/** By the arguments of cuMemsetD2D8 and its like; `width` counts values. */
template <typename Value>
ByteRange bytes_of_memset(CUdeviceptr address, size_t pitch, Value /*value*/, size_t width,
                          size_t height) {
    return height == 0
               ? bytes_at(address, 0)
               : range_of_rows(pointer(address), pitch, 0, height - 1, 0, width * sizeof(Value));
}

/** `which`: odd where the null stream is that of the thread. */
template <int which, typename... Arguments>
struct MemsetHook {
    static CUresult call(CUdeviceptr destination, Arguments... arguments) {
        const CUresult result = original(destination, arguments...);
        const ByteRange bytes = bytes_of_memset(destination, arguments...);
        note_early_return(result, {bytes.begin, bytes.last()}, which % 2 == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, Arguments...);
};

template <int which>
struct DeviceCopyHook {
    static CUresult call(CUdeviceptr destination, CUdeviceptr source, size_t length) {
        const CUresult result = original(destination, source, length);
        note_early_return(result,
                          {pointer(destination), bytes_at(destination, length).last(),
                           pointer(source), bytes_at(source, length).last()},
                          which == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, CUdeviceptr, size_t);
};

/** In a context of either side, and after all that there is in it. Null: the side is an array. */
void note_peer_copy(CUresult result, CUcontext context,
                    std::initializer_list<const void *> addresses) {
    if (is_to_be_noted(result) && context != nullptr) {
        UnfinishedCopies::instance().note(Stream::legacy, addresses, base_of_met, context);
    }
}

template <int which>
struct PeerCopyHook {
    static CUresult call(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                         CUcontext source_context, size_t length) {
        const CUresult result =
            original(destination, destination_context, source, source_context, length);
        const auto addresses = {pointer(destination), bytes_at(destination, length).last(),
                                pointer(source), bytes_at(source, length).last()};
        note_peer_copy(result, destination_context, addresses);
        note_peer_copy(result, source_context, addresses);
        note_early_return(result, addresses, which == 1);
        return result;
    }
    static inline CUresult (*original)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
};

/** One side of a copy of rows between devices. Members of `rows` that do not belong to the kind of
 * the side may hold anything. */
ByteRange bytes_of_rows(const CUDA_MEMCPY3D_PEER &rows, CUmemorytype type, CUdeviceptr address,
                        size_t pitch, size_t height, size_t z, size_t y, size_t x) {
    if ((type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) || rows.Height == 0 ||
        rows.Depth == 0) {
        return {nullptr, 0};
    }
    const size_t last_row = (z + rows.Depth - 1) * height + y + rows.Height - 1;
    return range_of_rows(pointer(address), pitch, z * height + y, last_row, x, rows.WidthInBytes);
}

template <int which>
struct PeerRowsHook {
    static CUresult call(const CUDA_MEMCPY3D_PEER *rows) {
        const CUresult result = original(rows);
        if (result == CUDA_SUCCESS) {
            const ByteRange destination =
                bytes_of_rows(*rows, rows->dstMemoryType, rows->dstDevice, rows->dstPitch,
                              rows->dstHeight, rows->dstZ, rows->dstY, rows->dstXInBytes);
            const ByteRange source =
                bytes_of_rows(*rows, rows->srcMemoryType, rows->srcDevice, rows->srcPitch,
                              rows->srcHeight, rows->srcZ, rows->srcY, rows->srcXInBytes);
            const auto addresses = {destination.begin, destination.last(), source.begin,
                                    source.last()};
            note_peer_copy(result, context_of(rows->dstMemoryType, rows->dstContext), addresses);
            note_peer_copy(result, context_of(rows->srcMemoryType, rows->srcContext), addresses);
            note_early_return(result, addresses, which == 1);
        }
        return result;
    }
    static CUcontext context_of(CUmemorytype type, CUcontext context) {
        return type == CU_MEMORYTYPE_ARRAY ? nullptr : context;
    }
    static inline CUresult (*original)(const CUDA_MEMCPY3D_PEER *);
};

/** From or to an array, which is no memory of a message; the other side may be. */
ByteRange bytes_of_array_copy(CUarray, size_t, CUdeviceptr source, size_t length) {
    return bytes_at(source, length);
}
ByteRange bytes_of_array_copy(CUdeviceptr destination, CUarray, size_t, size_t length) {
    return bytes_at(destination, length);
}
template <int which, typename... Arguments>
struct ArrayCopyHook {
    static CUresult call(Arguments... arguments) {
        const CUresult result = original(arguments...);
        const ByteRange bytes = bytes_of_array_copy(arguments...);
        note_early_return(result, {bytes.begin, bytes.last()}, which == 1);
        return result;
    }
    static inline CUresult (*original)(Arguments...);
};
template <int which>
using ToArrayHook = ArrayCopyHook<which, CUarray, size_t, CUdeviceptr, size_t>;
template <int which>
using FromArrayHook = ArrayCopyHook<which, CUdeviceptr, CUarray, size_t, size_t>;

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
using LaunchHook = StartHook<which, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, unsigned, CUstream, void **, void **>;
template <int which>  // its CUlaunchConfig came with CUDA 11.8
using LaunchExHook = StartHook<which, const void *, CUfunction, void **, void **>;
template <int which>
using GraphHook = StartHook<which, CUgraphExec, CUstream>;
template <int which>
using HostFunctionHook = StartHook<which, CUstream, CUhostFn, void *>;
template <int which>
using EventHook = StartHook<which, CUstream, CUevent, unsigned>;
template <int which, typename Value>
using ValueHook = StartHook<which, CUstream, CUdeviceptr, Value, unsigned>;
template <int which>
using BatchHook = StartHook<which, CUstream, unsigned, void *, unsigned>;
template <int which>
using CallbackHook = StartHook<which, CUstream, CUstreamCallback, void *, unsigned>;
template <int which>
using SemaphoreHook = StartHook<which, const void *, const void *, unsigned, CUstream>;

}  // namespace

void note_early_return(CUresult result, std::initializer_list<const void *> addresses,
                       bool of_thread) {
    if (is_to_be_noted(result)) {
        UnfinishedCopies::instance().note(stream_of(of_thread), addresses, base_of_met);
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
        hook<MemsetHook<0, size_t, unsigned char, size_t, size_t>>("cuMemsetD2D8_v2",
                                                                   "cuMemsetD2D8"),
        hook<MemsetHook<1, size_t, unsigned char, size_t, size_t>>("cuMemsetD2D8_v2_ptds",
                                                                   "cuMemsetD2D8"),
        hook<MemsetHook<0, size_t, unsigned short, size_t, size_t>>("cuMemsetD2D16_v2",
                                                                    "cuMemsetD2D16"),
        hook<MemsetHook<1, size_t, unsigned short, size_t, size_t>>("cuMemsetD2D16_v2_ptds",
                                                                    "cuMemsetD2D16"),
        hook<MemsetHook<0, size_t, unsigned, size_t, size_t>>("cuMemsetD2D32_v2", "cuMemsetD2D32"),
        hook<MemsetHook<1, size_t, unsigned, size_t, size_t>>("cuMemsetD2D32_v2_ptds",
                                                              "cuMemsetD2D32"),
    };
    return hooks;
}

const std::vector<Hook> &launch_hooks() {
    static const std::vector<Hook> hooks = {
        hook<LaunchHook<0>>("cuLaunchKernel", "cuLaunchKernel"),
        hook<LaunchHook<1>>("cuLaunchKernel_ptsz", "cuLaunchKernel"),
    };
    return hooks;
}

const std::vector<Hook> &other_separating_hooks() {
    static const char *const kBatch = "cuStreamBatchMemOp";
    static const char *const kSemaphores = "cuWaitExternalSemaphoresAsync";
    static const std::vector<Hook> hooks = {
        hook<LaunchExHook<0>>("cuLaunchKernelEx", "cuLaunchKernelEx"),
        hook<LaunchExHook<1>>("cuLaunchKernelEx_ptsz", "cuLaunchKernelEx"),
        hook<GraphHook<0>>("cuGraphLaunch", "cuGraphLaunch"),
        hook<GraphHook<1>>("cuGraphLaunch_ptsz", "cuGraphLaunch"),
        hook<HostFunctionHook<0>>("cuLaunchHostFunc", "cuLaunchHostFunc"),
        hook<HostFunctionHook<1>>("cuLaunchHostFunc_ptsz", "cuLaunchHostFunc"),
        hook<EventHook<0>>("cuStreamWaitEvent", "cuStreamWaitEvent"),
        hook<EventHook<1>>("cuStreamWaitEvent_ptsz", "cuStreamWaitEvent"),
        hook<StreamWaitHook<0>>("cuStreamSynchronize", "cuStreamSynchronize"),
        hook<StreamWaitHook<1>>("cuStreamSynchronize_ptsz", "cuStreamSynchronize"),
        hook<ValueHook<0, cuuint32_t>>("cuStreamWaitValue32_v2", "cuStreamWaitValue32"),
        hook<ValueHook<1, cuuint32_t>>("cuStreamWaitValue32_v2_ptsz", "cuStreamWaitValue32"),
        hook<ValueHook<2, cuuint32_t>>("cuStreamWaitValue32", "cuStreamWaitValue32"),
        hook<ValueHook<3, cuuint32_t>>("cuStreamWaitValue32_ptsz", "cuStreamWaitValue32"),
        hook<ValueHook<0, cuuint64_t>>("cuStreamWaitValue64_v2", "cuStreamWaitValue64"),
        hook<ValueHook<1, cuuint64_t>>("cuStreamWaitValue64_v2_ptsz", "cuStreamWaitValue64"),
        hook<ValueHook<2, cuuint64_t>>("cuStreamWaitValue64", "cuStreamWaitValue64"),
        hook<ValueHook<3, cuuint64_t>>("cuStreamWaitValue64_ptsz", "cuStreamWaitValue64"),
        hook<BatchHook<0>>("cuStreamBatchMemOp_v2", kBatch),
        hook<BatchHook<1>>("cuStreamBatchMemOp_v2_ptsz", kBatch),
        hook<BatchHook<2>>("cuStreamBatchMemOp", kBatch),
        hook<BatchHook<3>>("cuStreamBatchMemOp_ptsz", kBatch),
        hook<CallbackHook<0>>("cuStreamAddCallback", "cuStreamAddCallback"),
        hook<CallbackHook<1>>("cuStreamAddCallback_ptsz", "cuStreamAddCallback"),
        hook<SemaphoreHook<0>>("cuWaitExternalSemaphoresAsync", kSemaphores),
        hook<SemaphoreHook<1>>("cuWaitExternalSemaphoresAsync_ptsz", kSemaphores),
    };
    return hooks;
}

}  // namespace gpushm
