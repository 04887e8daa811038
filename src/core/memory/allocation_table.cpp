// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/allocation_table.hpp"

#include "core/base/no_throw.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace gpushm {
namespace {

uintptr_t number(const void *address) {
    return reinterpret_cast<uintptr_t>(address);
}

/** The last allocations that this thread has met; good for one generation of the table. */
struct RecentAllocations {
    static constexpr unsigned kCount = 4;
    uint64_t generation = 0;
    unsigned next = 0;
    MemoryInfo entries[kCount];  // length 0: none
};

thread_local RecentAllocations recent;

}  // namespace

AllocationTable &AllocationTable::instance() {
    static AllocationTable *const table = new AllocationTable;
    [[maybe_unused]] static const int watched = pthread_atfork(
        nullptr, nullptr, [] { new (table) AllocationTable(table->generation() + 1); });
    return *table;
}

// When the plugin is loaded: a child that is forked within the first call would wait for its end.
[[maybe_unused]] static const AllocationTable &made_at_load = AllocationTable::instance();

AllocationTable::Allocations::iterator AllocationTable::first_that_ends_behind(uintptr_t address) {
    auto entry = allocations_.upper_bound(address);
    if (entry != allocations_.begin()) {
        const auto before = std::prev(entry);
        if (address - before->first < before->second.length) {
            return before;
        }
    }
    return entry;
}

bool AllocationTable::find(const void *address, MemoryInfo *info) {
    const uint64_t now = generation();
    if (recent.generation != now) {
        recent = RecentAllocations();
        recent.generation = now;
    }
    for (const MemoryInfo &entry : recent.entries) {
        if (number(address) - number(entry.base) < entry.length) {
            *info = entry;
            return true;
        }
    }
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = first_that_ends_behind(number(address));
    if (found == allocations_.end() || found->first > number(address)) {
        return false;
    }
    *info = found->second;
    recent.entries[recent.next++ % RecentAllocations::kCount] = *info;
    return true;
}

AllocationTable::Allocations AllocationTable::take_overlapping(uintptr_t begin, uintptr_t end) {
    Allocations taken;
    auto entry = first_that_ends_behind(begin);
    while (entry != allocations_.end() && entry->first < end) {
        taken.insert(allocations_.extract(entry++));
    }
    return taken;
}

void AllocationTable::add(const MemoryInfo &info, uint64_t generation) {
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    if (generation_.load(std::memory_order_relaxed) == generation) {
        take_overlapping(number(info.base),
                         number(info.base) + info.length);  // another thread has added it meanwhile
        as_possible([&] { allocations_[number(info.base)] = info; });
    }
}

AllocationTable::Allocations AllocationTable::forget(const void *begin, size_t length) {
    const uintptr_t end = number(begin) + std::min(length, UINTPTR_MAX - number(begin));
    const std::lock_guard<std::shared_mutex> lock(mutex_);
    Allocations gone = take_overlapping(number(begin), end);
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
