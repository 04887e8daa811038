// SPDX-License-Identifier: BSD-3-Clause
// The driver's allocations that messages have met, to answer without asking the driver again.
#pragma once

#include "core/base/fork_safe.hpp"
#include "core/base/interval_map.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <shared_mutex>

namespace gpushm {

/** Remembers what the driver said of an allocation for as long as it lives. It is right only while
 * somebody forgets what goes away: the hooks of driver_hooks.hpp. Thread safe; the functions that
 * forget may be called inside of any call of the driver. */
class AllocationTable {
public:
    static AllocationTable &instance();
    void begin_in_child();  // for ForkSafe

    /** What add() was given for the allocation in which `address` lies; false when there is none.
     * */
    bool find(const void *address, MemoryInfo *info);

    /** Counts the times that something may have gone away. */
    uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

    /** `generation` was read before the driver was asked for `info`: what has become of it since
     * would not be known, so nothing is added when something was forgotten in between, nor when
     * memory is short. */
    void add(const MemoryInfo &info, uint64_t generation);

    using Allocations = IntervalMap<MemoryInfo>;

    /** What lies at an address, or anywhere in a range; returns what was known of it. Allocates
     * nothing. */
    Allocations forget(const void *address) { return forget(address, 1); }
    Allocations forget(const void *begin, size_t length);
    Allocations forget_all();

private:
    friend class ForkSafe<AllocationTable>;
    explicit AllocationTable(uint64_t generation = 1)
        : generation_(generation) {}  // one only: threads keep entries by it

    std::shared_mutex mutex_;
    Allocations allocations_;
    std::atomic<uint64_t> generation_;  // written with mutex_ held
};

}  // namespace gpushm
