// SPDX-License-Identifier: BSD-3-Clause
#include "core/allocation_history.hpp"

namespace gpushm {
namespace {

// A program that never uses an address again would let the history grow: then it begins anew.
constexpr size_t kMaxAllocations = 1u << 14;

const unsigned char *begin_of(const MemoryInfo &allocation) {
    return static_cast<const unsigned char *>(allocation.base);
}

const unsigned char *end_of(const MemoryInfo &allocation) {
    return begin_of(allocation) + allocation.length;
}

}  // namespace

/** The allocation in which `address` lies, or end. */
AllocationHistory::Allocations::iterator AllocationHistory::find(const unsigned char *address) {
    auto next = allocations_.upper_bound(address);
    if (next == allocations_.begin()) {
        return allocations_.end();
    }
    const auto candidate = std::prev(next);
    return address < end_of(candidate->second) ? candidate : allocations_.end();
}

void AllocationHistory::remove_overlapping(const MemoryInfo &allocation,
                                           std::vector<MemoryInfo> *gone) {
    auto entry = allocations_.upper_bound(begin_of(allocation));
    if (entry != allocations_.begin() &&
        end_of(std::prev(entry)->second) > begin_of(allocation)) {
        --entry;
    }
    while (entry != allocations_.end() && entry->first < end_of(allocation)) {
        gone->push_back(entry->second);
        entry = allocations_.erase(entry);
    }
}

bool AllocationHistory::observe(const void *address, const MemoryInfo &info,
                                std::vector<MemoryInfo> *gone) {
    if (!info.needs_gpu() && empty_.load(std::memory_order_acquire)) {
        return false;  // as in a program that uses host memory only
    }
    const auto *byte = static_cast<const unsigned char *>(address);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = find(byte);
    if (!info.needs_gpu()) {
        if (known != allocations_.end()) {
            gone->push_back(known->second);
            allocations_.erase(known);
        }
        return false;
    }
    if (known != allocations_.end() && known->second.buffer_id == info.buffer_id) {
        return false;
    }
    remove_overlapping(info, gone);
    if (allocations_.size() >= kMaxAllocations) {
        for (const auto &entry : allocations_) {
            gone->push_back(entry.second);
        }
        allocations_.clear();
    }
    allocations_[begin_of(info)] = info;
    empty_.store(false, std::memory_order_release);
    return true;
}

}  // namespace gpushm
