// SPDX-License-Identifier: BSD-3-Clause
// Which allocations messages have met or are meeting, for the hooks of copies of the application.
#pragma once

#include "core/base/immovable.hpp"
#include "core/memory/memory_info.hpp"

namespace gpushm {

/** While it lives, messages meet that allocation for the first time: hooks take it as met, although
 * query_memory() does not know it yet. A call that a hook has noted without seeing it was noted
 * before the message waits (UnfinishedCopies::note()). */
class MeetingMemory : Immovable {
public:
    explicit MeetingMemory(const MemoryInfo &info);
    ~MeetingMemory();

private:
    const MeetingMemory *next_;
    const MemoryInfo &info_;

    friend const void *base_of_met(const void *address);
};

/** The base of the allocation in which `address` lies, if messages have met it or are meeting it;
 * else null. Any thread. */
const void *base_of_met(const void *address);

}  // namespace gpushm
