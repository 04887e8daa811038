// SPDX-License-Identifier: BSD-3-Clause
// Allocations that messages have met, so that the driver is not asked about them again.
#pragma once

#include "core/base/fork_safe.hpp"
#include "core/base/interval_map.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <shared_mutex>

namespace gpushm {

/** Remembers what the driver said of an allocation for as long as that exists. It is right only
 * while the hooks of driver_hooks.hpp forget what goes away. Thread safe; the functions that forget
 * may be called during any call of the driver. */
class AllocationTable {
public:
    static AllocationTable &instance();
    void begin_in_child();  // for ForkSafe

    /** Finds what add() was given for the allocation in which `address` lies; false when there is
     * none. */
    bool find(const void *address, MemoryInfo *info);

    /** Grows each time that something may have gone away. */
    uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

    /** `generation` is generation() before the driver was asked for `info`. Adds nothing if
     * something was forgotten since then, because that may have been this allocation; nor when
     * memory is short. */
    void add(const MemoryInfo &info, uint64_t generation);

    using Allocations = IntervalMap<MemoryInfo>;

    /** Forgets the allocations at an address, or those that overlap a range; returns what was known
     * of them. Allocates nothing. */
    Allocations forget(const void *address) { return forget(address, 1); }
    Allocations forget(const void *begin, size_t length);
    Allocations forget_all();

private:
    friend class ForkSafe<AllocationTable>;
    // Threads keep entries by the generation: only one table may exist.
    explicit AllocationTable(uint64_t generation = 1) : generation_(generation) {}

    std::shared_mutex mutex_;
    Allocations allocations_;
    std::atomic<uint64_t> generation_;  // written with mutex_ held
};

}  // namespace gpushm
