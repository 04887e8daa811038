// SPDX-License-Identifier: BSD-3-Clause
// Which allocations messages have met, as seen by the hooks of the application's copies.
#pragma once

#include "core/memory/memory_info.hpp"

namespace gpushm {

/** While it lives, messages meet that allocation for the first time: hooks see it as met,
 * query_memory() does not know it yet. What hooks note without seeing it is noted before its
 * message waits (UnfinishedCopies::note()). */
class MeetingMemory {
public:
    explicit MeetingMemory(const MemoryInfo &info);
    MeetingMemory(const MeetingMemory &) = delete;
    MeetingMemory &operator=(const MeetingMemory &) = delete;
    ~MeetingMemory();

private:
    const MeetingMemory *next_;
    const MemoryInfo &info_;

    friend const void *base_of_met(const void *address);
};

/** The base of the allocation that messages have met, or are meeting, and that `address` lies in;
 * null: none. Any thread. */
const void *base_of_met(const void *address);

}  // namespace gpushm
