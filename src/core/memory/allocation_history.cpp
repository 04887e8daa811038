// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/allocation_history.hpp"

#include "core/base/addresses.hpp"

namespace gpushm {
namespace {

// A program that never uses an address again lets the history grow: then it begins anew.
constexpr size_t kMaxAllocations = 1u << 14;

}  // namespace

/** Removes what overlaps [begin, end). */
void AllocationHistory::remove(uintptr_t begin, uintptr_t end, std::vector<MemoryInfo> *gone) {
    allocations_.take_overlapping(begin, end, [&](const auto &allocation) {
        ids_.erase(allocation.second.buffer_id);
        gone->push_back(allocation.second);
    });
}

bool AllocationHistory::observe(const void *address, const MemoryInfo &info,
                                std::vector<MemoryInfo> *gone) {
    if (!info.needs_gpu() && empty_.load(std::memory_order_acquire)) {
        return false;  // as in a program that uses host memory only
    }
    if (info.needs_gpu() && ids_.contains(info.buffer_id)) {
        return false;  // the usual case, without a lock
    }
    const auto byte = to_number(address);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!info.needs_gpu()) {
        remove(byte, byte + 1, gone);
        return false;
    }
    const auto known = allocations_.containing(byte);
    if (known != allocations_.end() && known->second.buffer_id == info.buffer_id) {
        return false;
    }
    const auto base = to_number(info.base);
    remove(base, info.range_end(), gone);
    if (allocations_.size() >= kMaxAllocations) {
        remove(0, UINTPTR_MAX, gone);
    }
    allocations_[base] = info;
    // Of length 1 the range is not known (query_memory()): other bytes of it may come.
    if (info.length > 1) {
        ids_.insert(info.buffer_id);
    }
    empty_.store(false, std::memory_order_release);
    return true;
}

}  // namespace gpushm
