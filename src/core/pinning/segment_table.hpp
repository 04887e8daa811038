// SPDX-License-Identifier: BSD-3-Clause
// The host memory of this process that gpushm shares with peers, and whether it is page-locked for
// the GPU.
#pragma once

#include "core/base/interval_map.hpp"

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace gpushm {

/** All mapped segments. A segment is page-locked (cuMemHostRegister) when the first GPU copy
 * touches it and not before: it takes milliseconds (doc/decisions/pinning-costs.md), which a job
 * on host memory never pays. Thread safe. */
class SegmentTable {
public:
    static SegmentTable &instance();
    void begin_in_child();  // for ForkSafe

    void add(unsigned char *base, size_t length);
    /** Unmaps a segment. One that is page-locked is unlocked and unmapped later (defer_free()),
     * because the driver waits for kernels of the application then. Needs no current context. */
    void unmap(unsigned char *base, size_t length);

    /** Whether `address` lies in a segment: then it is host memory, and the driver need not be
     * asked. */
    bool contains(const void *address);

    /** Page-locks the segment in which `address` lies, once, in `context`, which is alive and has
     * `context_id` (CudaDriver::context_id). Does nothing for other memory. When the driver
     * refuses, one line is logged and copies go on with pageable memory: slower, but correct.
     * Returns whether `address` lies in a segment that is page-locked. */
    bool ensure_pinned(const void *address, CUcontext context, unsigned long long context_id);

    /** UCX_GPUSHM_PIN=n: ensure_pinned does nothing. */
    void set_pinning_enabled(bool enabled);

private:
    enum class State { pageable, pinned, refused };
    struct Region {
        uintptr_t end;
        State state;
        CUcontext context;  // in which it was page-locked; the lock ends with it
        unsigned long long context_id = 0;
        uint64_t epoch = 0;  // context_epoch() when it was last seen alive

        uintptr_t range_end() const { return end; }
    };

    using Regions = IntervalMap<Region>;

    static bool still_pinned(Region &region, CUcontext alive, unsigned long long alive_id);

    std::mutex mutex_;
    Regions regions_;
    // The range in which segments have been so far, to tell other memory without the mutex. Written
    // with the mutex held.
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
