// SPDX-License-Identifier: BSD-3-Clause
// Which host memory of this process is shared memory of gpushm, and page-locked for the GPU.
#pragma once

#include "core/base/interval_map.hpp"

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace gpushm {

/** All mapped segments. One is page-locked (cuMemHostRegister, 0.7 to 4 ms) when the first GPU copy
 * touches it and not before, so that a job on host memory never pays for it. Safe to use from
 * every thread. */
class SegmentTable {
public:
    static SegmentTable &instance();
    void begin_in_child();  // for ForkSafe

    void add(unsigned char *base, size_t length);
    /** Unlocks and unmaps it; in the background where it is page-locked, for the driver waits for
     * kernels of the application then. Needs no current context. */
    void unmap(unsigned char *base, size_t length);

    /** Whether `address` lies in a segment: then it is host memory, which the driver need not be
     * asked. */
    bool contains(const void *address);

    /** Page-locks the segment in which `address` lies, once, in `context`, which is alive and has
     * `context_id` (CudaDriver::context_id); does nothing for other
     * memory. When the driver refuses, one line is logged and copies go on with pageable memory:
     * slower, as correct. Whether it lies in a segment that is page-locked. */
    bool ensure_pinned(const void *address, CUcontext context, unsigned long long context_id);

    /** UCX_GPUSHM_PIN=n: ensure_pinned does nothing. */
    void set_pinning_enabled(bool enabled);

private:
    enum class State { pageable, pinned, refused };
    struct Region {
        uintptr_t end;
        State state;
        CUcontext context;  // in which it was page-locked, which ends with it
        unsigned long long context_id = 0;
        uint64_t epoch = 0;  // context_epoch() when it was last seen alive

        uintptr_t range_end() const { return end; }
    };

    using Regions = IntervalMap<Region>;

    std::optional<Region> take(unsigned char *base);
    static bool still_pinned(Region &region, CUcontext alive, unsigned long long alive_id);

    std::mutex mutex_;
    Regions regions_;
    // Where segments have been so far, to tell other memory without the mutex. Written under it.
    std::atomic<uintptr_t> lowest_{UINTPTR_MAX};
    std::atomic<uintptr_t> highest_{0};
    bool is_elsewhere(const void *address) const {
        const auto number = reinterpret_cast<uintptr_t>(address);
        return number < lowest_.load(std::memory_order_relaxed) ||
               number >= highest_.load(std::memory_order_relaxed);
    }
    bool pinning_enabled_ = true;
};

}  // namespace gpushm
