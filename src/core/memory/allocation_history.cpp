// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/allocation_history.hpp"

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

AllocationHistory::Allocations::iterator AllocationHistory::remove(Allocations::iterator entry,
                                                                   std::vector<MemoryInfo> *gone) {
    ids_.erase(entry->second.buffer_id);
    gone->push_back(entry->second);
    return allocations_.erase(entry);
}

void AllocationHistory::remove_overlapping(const MemoryInfo &allocation,
                                           std::vector<MemoryInfo> *gone) {
    auto entry = allocations_.upper_bound(begin_of(allocation));
    if (entry != allocations_.begin() && end_of(std::prev(entry)->second) > begin_of(allocation)) {
        --entry;
    }
    while (entry != allocations_.end() && entry->first < end_of(allocation)) {
        entry = remove(entry, gone);
    }
}

bool AllocationHistory::observe(const void *address, const MemoryInfo &info,
                                std::vector<MemoryInfo> *gone) {
    if (!info.needs_gpu() && empty_.load(std::memory_order_acquire)) {
        return false;  // as in a program that uses host memory only
    }
    if (info.needs_gpu() && ids_.contains(info.buffer_id)) {
        return false;  // the usual case, without a lock
    }
    const auto *byte = static_cast<const unsigned char *>(address);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = find(byte);
    if (!info.needs_gpu()) {
        if (known != allocations_.end()) {
            remove(known, gone);
        }
        return false;
    }
    if (known != allocations_.end() && known->second.buffer_id == info.buffer_id) {
        return false;
    }
    remove_overlapping(info, gone);
    if (allocations_.size() >= kMaxAllocations) {
        while (!allocations_.empty()) {
            remove(allocations_.begin(), gone);
        }
    }
    allocations_[begin_of(info)] = info;
    if (info.length >
        1) {  // else its range is not known (query_memory()), and other bytes of it may come
        ids_.insert(info.buffer_id);
    }
    empty_.store(false, std::memory_order_release);
    return true;
}

}  // namespace gpushm
