// SPDX-License-Identifier: BSD-3-Clause
// A cache of host memory of the application that gpushm has page-locked for the GPU.
#pragma once

#include "core/base/byte_range.hpp"
#include "core/base/interval_map.hpp"
#include "core/memory/memory_info.hpp"

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace gpushm {

/** A GPU reads and writes page-locked memory at the speed of its link, while pageable memory passes
 * a buffer that a CPU copies. To page-lock costs as much as some copies
 * (doc/decisions/pinning-costs.md), so a buffer is locked when it was used so often that locking it
 * earlier would have paid.
 *
 * The driver goes on using the locked pages when the memory is unmapped and something else is
 * mapped at its address, also for copies of the application. So nothing is locked before enable()
 * has promised that invalidate() is called before memory goes away, and that call unlocks it. The
 * call may come from within free(). So memory that the C library unmaps while it holds a lock of
 * its own (the heap, arenas of threads) is never locked, because unlocking it needs free() again.
 *
 * Thread safe. */
class HostRegistrationCache {
public:
    static HostRegistrationCache &instance();
    void begin_in_child();  // for ForkSafe

    /** `limit_bytes`: how much may be locked at any time; 0: nothing. */
    void enable(size_t limit_bytes);

    /** Keeps memory locked. */
    using Hold = std::shared_ptr<const void>;

    /** A hold when [address, +length) is page-locked, which this call may do. Null when it is not:
     * then the caller lets a CPU copy it, which takes `missed_seconds` longer. `info` describes the
     * memory at `address`. A hold of memory that the application itself has locked holds nothing
     * and has use_count() 0. What this cache locks is mapped for kernels too. */
    Hold acquire(const MemoryInfo &info, const void *address, size_t length, CUcontext context,
                 double missed_seconds);
    /** Whether this cache has locked what is held, and kernels find it at its address in this
     * process. */
    static bool is_mapped_for_kernels(const Hold &hold);

    /** This memory is about to be unmapped. The code that watches munmap(2) calls it, in any
     * thread, also from within acquire() and from within malloc(). On return none of the memory is
     * locked, except what is still held. Takes a few loads unless some of it is locked. */
    void invalidate(const void *address, size_t length);

    /** The application is about to page-lock this memory itself, which fails while any of it is
     * locked. Works as invalidate(), but does nothing within acquire(), which locks memory too. */
    void make_way(const void *address, size_t length);

    /** What is locked of this memory stays locked until it is unmapped, the application page-locks
     * it, or its context ends; no other memory displaces it. For a graph of the application, which
     * copies the memory as it is now. */
    void keep(const void *address, size_t length);

    /** How many of `length` bytes at `address` one copy of the driver can take: the driver refuses
     * a copy that begins in page-locked memory and leaves it (driver 580;
     * test/simcuda/conformance_memory.cpp). All of them, where this cache has not locked the
     * memory at `address`. Takes a load unless something is locked. */
    size_t length_of_one_copy(const void *address, size_t length) const;

    /** Whether this cache has locked any of the memory. Takes a load unless something is locked. */
    bool has_locked(const void *address, size_t length) const;

    /** While it lives, no memory is unlocked in favour of other memory. For a copy of the
     * application that may touch memory that this cache has locked: the driver does not wait for
     * copies in other contexts when it unlocks memory. Takes a few loads and stores unless
     * something of its sides is being unlocked. */
    class ApplicationCopy {
    public:
        ApplicationCopy(HostRegistrationCache &pins, const TouchedBytes &sides);
        ~ApplicationCopy();
        ApplicationCopy(const ApplicationCopy &) = delete;
        ApplicationCopy &operator=(const ApplicationCopy &) = delete;

    private:
        HostRegistrationCache &pins_;
    };

private:
    struct Pinned;
    /** Locked memory, to be read without the mutex. Written with the mutex held, except `end`; an
     * empty slot has end 0. */
    struct Locked {
        std::atomic<uintptr_t> begin{0};
        std::atomic<uintptr_t> end{0};
        std::atomic<bool> unlocking{false};  // a thread unlocks it, without the mutex

        bool overlaps(uintptr_t from, uintptr_t to) const {
            return from < end.load(std::memory_order_acquire) &&
                   to > begin.load(std::memory_order_relaxed);
        }
    };
    /** A page-aligned range that was used at least once. */
    struct Range {
        uintptr_t end;
        double missed_seconds = 0;
        unsigned uses = 0;
        bool refused = false;
        std::shared_ptr<Pinned> pinned;
        bool kept = false;   // keep()
        uint64_t epoch = 0;  // context_epoch() when the context of `pinned` was last seen alive
        std::list<uintptr_t>::iterator age;

        uintptr_t range_end() const { return end; }
    };
    using Ranges = IntervalMap<Range>;

    Ranges::iterator merge(uintptr_t begin, uintptr_t end);
    void pin(Ranges::iterator range, CUcontext context);
    void release(Locked &slot);
    void unpin(Ranges::iterator range);
    void erase(Ranges::iterator range);
    bool may_erase(const Range &range);
    bool may_unlock(const Range &range);
    static bool is_locked_still(Range &range);
    Ranges take_overlapping(uintptr_t begin, uintptr_t end);
    void unlock_overlapping(uintptr_t begin, uintptr_t end);
    Hold find_or_pin(uintptr_t begin, uintptr_t end, CUcontext context, double missed_seconds);
    bool make_room(size_t bytes);
    void bound(uintptr_t keep);
    void apply_deferred();

    std::mutex mutex_;
    Ranges ranges_;
    std::list<uintptr_t> ages_;  // least recently used first
    size_t limit_bytes_ = 0;
    size_t pinned_bytes_ = 0;
    uint64_t ask_again_ = 0;  // when is_quiescent() may be asked; monotonic_nanoseconds()
    uint64_t ask_pause_ = 0;

    static constexpr size_t kMaxLocked = 64;
    Locked locked_[kMaxLocked];
    std::atomic<size_t> locked_count_{0};  // slots in use; grows before a slot is filled
    std::atomic<unsigned> application_copies_{0};
    bool overlaps_locked(uintptr_t begin, uintptr_t end) const;
    bool is_being_unlocked(uintptr_t begin, uintptr_t end) const;
};

}  // namespace gpushm
