// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/allocation_table.hpp"

#include "core/base/addresses.hpp"
#include "core/base/fork_safe.hpp"
#include "core/base/no_throw.hpp"

#include <algorithm>
#include <mutex>
#include <new>

namespace gpushm {
namespace {

/** The last allocations that this thread has met; valid for one generation of the table. */
struct RecentAllocations {
    static constexpr unsigned kCount = 4;
    uint64_t generation = 0;
    unsigned next = 0;
    MemoryInfo entries[kCount];  // length 0: none
};

thread_local RecentAllocations recent;

}  // namespace

AllocationTable &AllocationTable::instance() {
    return ForkSafe<AllocationTable>::instance();
}

void AllocationTable::begin_in_child() {
    new (this) AllocationTable(generation() + 1);
}

bool AllocationTable::find(const void *address, MemoryInfo *info) {
    const uint64_t now = generation();
    if (recent.generation != now) {
        recent = RecentAllocations();
        recent.generation = now;
    }
    for (const MemoryInfo &entry : recent.entries) {
        if (entry.contains(address)) {
            *info = entry;
            return true;
        }
    }
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = allocations_.containing(to_number(address));
    if (found == allocations_.end()) {
        return false;
    }
    *info = found->second;
    recent.entries[recent.next++ % RecentAllocations::kCount] = *info;
    return true;
}

void AllocationTable::add(const MemoryInfo &info, uint64_t generation) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    if (generation_.load(std::memory_order_relaxed) == generation) {
        // Another thread may have added it meanwhile.
        allocations_.take_overlapping(to_number(info.base), info.range_end());
        as_possible([&] { allocations_[to_number(info.base)] = info; });
    }
}

AllocationTable::Allocations AllocationTable::forget(const void *begin, size_t length) {
    const uintptr_t end = to_number(begin) + std::min(length, UINTPTR_MAX - to_number(begin));
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    Allocations gone = allocations_.take_overlapping(to_number(begin), end);
    generation_.fetch_add(1, std::memory_order_release);
    return gone;
}

AllocationTable::Allocations AllocationTable::forget_all() {
    Allocations gone;
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    gone.swap(allocations_);
    generation_.fetch_add(1, std::memory_order_release);
    return gone;
}

}  // namespace gpushm
