// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/met_memory.hpp"

#include "core/memory/allocation_table.hpp"

#include <mutex>

namespace gpushm {
namespace {

std::mutex mutex;
const MeetingMemory *first;  // a list, with the mutex held

}  // namespace

MeetingMemory::MeetingMemory(const MemoryInfo &info) : info_(info) {
    const std::lock_guard<std::mutex> lock(mutex);
    next_ = first;
    first = this;
}

MeetingMemory::~MeetingMemory() {
    const std::lock_guard<std::mutex> lock(mutex);
    const MeetingMemory **place = &first;
    while (*place != this) {
        place = const_cast<const MeetingMemory **>(&(*place)->next_);
    }
    *place = next_;
}

const void *base_of_met(const void *address) {
    MemoryInfo known;
    if (AllocationTable::instance().find(address, &known)) {
        return known.base;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        for (const MeetingMemory *meeting = first; meeting != nullptr; meeting = meeting->next_) {
            if (meeting->info_.contains(address)) {
                return meeting->info_.base;
            }
        }
    }
    // It may have been met between the two looks.
    return AllocationTable::instance().find(address, &known) ? known.base : nullptr;
}

}  // namespace gpushm
