// SPDX-License-Identifier: BSD-3-Clause
#include "core/hooks/copy_hooks.hpp"

#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/hooks/early_returns.hpp"
#include "core/hooks/row_ranges.hpp"
#include "core/pinning/host_registration_cache.hpp"

#include <cstddef>
#include <type_traits>
#include <vector>

namespace gpushm {
namespace {

const void *pointer_to(const void *address) {
    return address;
}
const void *pointer_to(CUdeviceptr address) {
    return reinterpret_cast<const void *>(address);
}

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

/** Whether the stream is being captured: nothing is copied yet, but whenever the graph runs. */
bool is_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CudaDriver *driver = CudaDriver::get();
    return driver->stream_is_capturing == nullptr ||
           driver->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/** Whether we have page-locked some of either side. */
bool touches_locked(const TouchedBytes &sides) {
    const auto has_locked = [](const ByteRange &side) {
        return HostRegistrationCache::instance().has_locked(side.begin, side.length);
    };
    return has_locked(sides.destination) || has_locked(sides.source);
}

/** Completes an asynchronous copy as the application expects of pageable memory: when the call
 * returns its source has been read, or all of it is done (CUDA driver API manual, "API
 * synchronization behavior"). The driver does not do so for memory that is page-locked, which the
 * application does not know. */
CUresult end_copy(const TouchedBytes &sides, CUstream stream, bool of_thread) {
    const CUstream copied_by = stream_of_copy(stream, of_thread);
    if (is_captured(copied_by)) {
        HostRegistrationCache::instance().keep(sides.destination.begin, sides.destination.length);
        HostRegistrationCache::instance().keep(sides.source.begin, sides.source.length);
        return CUDA_SUCCESS;
    }
    const RelaxedCapture relaxed(CudaDriver::get());
    return CudaDriver::get()->stream_synchronize(copied_by);
}

/** A synchronous copy is complete. */
CUresult end_copy(const TouchedBytes & /*sides*/, bool /*of_thread*/) {
    return CUDA_SUCCESS;
}

/** The bytes of a source that HostRegistrationCache has locked, which the driver reads at once from
 * pageable memory, without waiting for the work in the stream (CUDA C++ Programming Guide,
 * "Asynchronous Concurrent Execution"): that may be a kernel that waits for a message of this
 * thread. Empty in other cases. */
std::vector<char> take_at_once(const ByteRange &source, CUstream stream, bool of_thread) {
    constexpr size_t kMaxBytes = 64 << 10;
    if (source.length > kMaxBytes ||
        !HostRegistrationCache::instance().has_locked(source.begin, source.length) ||
        is_captured(stream_of_copy(stream, of_thread))) {
        return {};
    }
    std::vector<char> taken;
    const char *begin = static_cast<const char *>(source.begin);
    as_possible(
        [&] { taken.assign(begin, begin + source.length); });  // else the copy waits for the stream
    return taken;
}

/** A synchronous copy waits for the stream anyway. */
std::vector<char> take_at_once(const ByteRange & /*source*/, bool /*of_thread*/) {
    return {};
}

/** A copy between buffers of the application, a part of which HostRegistrationCache may have
 * page-locked: it is done in pieces that the driver accepts
 * (HostRegistrationCache::length_of_one_copy()). `which`: 1 where the null stream is that of the
 * thread. */
template <int which, typename Destination, typename Source, typename... Stream>
struct CopyHook {
    static CUresult call(Destination destination, Source source, size_t length, Stream... stream) {
        if (OwnCopies::under_way()) {  // they hold what they need
            return copy(destination, source, length, stream...);
        }
        const std::vector<char> taken =
            take_at_once({pointer_to(source), length}, stream..., which == 1);
        if (!taken.empty()) {
            source = (Source)taken.data();
        }
        const TouchedBytes sides = {{pointer_to(destination), length},
                                    {pointer_to(source), length}};
        const HostRegistrationCache::ApplicationCopy under_way(HostRegistrationCache::instance(),
                                                               sides);
        const CUresult result = copy(destination, source, length, stream...);
        if constexpr (sizeof...(Stream) == 0 && std::is_same_v<Destination, CUdeviceptr>) {
            note_early_return(result, sides, which == 1);
        }
        // Asked after the copy, because another thread may have locked it before the driver looked.
        return result == CUDA_SUCCESS && touches_locked(sides)
                   ? end_copy(sides, stream..., which == 1)
                   : result;
    }
    static size_t length_of_part(Destination destination, Source source, size_t length) {
        const HostRegistrationCache &pins = HostRegistrationCache::instance();
        return pins.length_of_one_copy(pointer_to(destination),
                                       pins.length_of_one_copy(pointer_to(source), length));
    }
    static CUresult copy(Destination destination, Source source, size_t length, Stream... stream) {
        for (;;) {
            const size_t part = length_of_part(destination, source, length);
            const CUresult result = original(destination, source, part, stream...);
            if (result == CUDA_ERROR_INVALID_VALUE &&
                length_of_part(destination, source, length) < part) {
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

/** The size of the first of two parts: a power of two, which divides a row of an array between its
 * elements. */
size_t first_part(size_t count) {
    size_t part = 1;
    while (2 * part < count) {
        part *= 2;
    }
    return part;
}

/** Divides rows in one dimension. */
template <typename Rows>
void divide(Rows *rows, Rows *rest, size_t Rows::*count, size_t Rows::*source,
            size_t Rows::*destination) {
    rows->*count = first_part(rows->*count);
    rest->*count -= rows->*count;
    rest->*source += rows->*count;
    rest->*destination += rows->*count;
}

/** Divides `*rows` into a first part, which it becomes, and `*rest`; false when they are a single
 * byte. */
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

/** A copy of rows; see CopyHook. */
template <int which, typename Rows, typename... Stream>
struct RowsHook {
    static CUresult call(const Rows *rows, Stream... stream) {
        if (rows == nullptr || OwnCopies::under_way()) {
            return original(rows, stream...);
        }
        const TouchedBytes sides = touched_bytes(*rows, Sides::that_may_be_host_memory);
        const HostRegistrationCache::ApplicationCopy under_way(HostRegistrationCache::instance(),
                                                               sides);
        const CUresult result = copy(*rows, stream...);
        if constexpr (sizeof...(Stream) == 0) {
            note_early_return(result, touched_bytes(*rows, Sides::of_any_memory), which % 2 == 1);
        }
        return result == CUDA_SUCCESS && touches_locked(sides)
                   ? end_copy(sides, stream..., which == 1)
                   : result;
    }
    /** Copies the whole, or smaller and smaller parts if the driver refuses: a row may leave the
     * memory that is locked. */
    static CUresult copy(Rows rows, Stream... stream) {
        const CUresult result = original(&rows, stream...);
        Rows rest = {};
        if (result != CUDA_ERROR_INVALID_VALUE ||
            !touches_locked(touched_bytes(rows, Sides::that_may_be_host_memory)) ||
            !divide(&rows, &rest)) {
            return result;
        }
        const CUresult first = copy(rows, stream...);
        return first == CUDA_SUCCESS ? copy(rest, stream...) : first;
    }
    static inline CUresult (*original)(const Rows *, Stream...);
};

}  // namespace

Hooks copy_hooks() {
    return joined({
        hooks_of<CopyHook, CUdeviceptr, const void *>("cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"),
        hooks_of<CopyHook, CUdeviceptr, const void *, CUstream>("cuMemcpyHtoDAsync_v2",
                                                                "cuMemcpyHtoDAsync_v2_ptsz"),
        hooks_of<CopyHook, void *, CUdeviceptr>("cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds"),
        hooks_of<CopyHook, void *, CUdeviceptr, CUstream>("cuMemcpyDtoHAsync_v2",
                                                          "cuMemcpyDtoHAsync_v2_ptsz"),
        hooks_of<CopyHook, CUdeviceptr, CUdeviceptr>("cuMemcpy", "cuMemcpy_ptds"),
        hooks_of<CopyHook, CUdeviceptr, CUdeviceptr, CUstream>("cuMemcpyAsync",
                                                               "cuMemcpyAsync_ptsz"),
        hooks_of<RowsHook, CUDA_MEMCPY2D>("cuMemcpy2D_v2", "cuMemcpy2D_v2_ptds",
                                          "cuMemcpy2DUnaligned_v2", "cuMemcpy2DUnaligned_v2_ptds"),
        hooks_of<RowsHook, CUDA_MEMCPY2D, CUstream>("cuMemcpy2DAsync_v2",
                                                    "cuMemcpy2DAsync_v2_ptsz"),
        hooks_of<RowsHook, CUDA_MEMCPY3D>("cuMemcpy3D_v2", "cuMemcpy3D_v2_ptds"),
        hooks_of<RowsHook, CUDA_MEMCPY3D, CUstream>("cuMemcpy3DAsync_v2",
                                                    "cuMemcpy3DAsync_v2_ptsz"),
    });
}

}  // namespace gpushm
