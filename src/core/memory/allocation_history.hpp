// SPDX-License-Identifier: BSD-3-Clause
// GPU allocations that were seen, to notice when one of them is gone.
#pragma once

#include "core/base/interval_map.hpp"
#include "core/memory/buffer_ids.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gpushm {

/** UCP keeps registrations by address, and nobody tells it that GPU memory was freed: an address
 * that is allocated again, as another kind perhaps, would meet the registration of what was there
 * before. Every buffer passes here before UCP looks for a registration; what its address
 * contradicts is reported as gone. Thread safe. */
class AllocationHistory {
public:
    /** `address` is about to be used, and `info` is what query_memory() says of it. True when it
     * lies in GPU memory that was not seen before. `gone` receives the allocations that were seen
     * at these addresses earlier and do not exist any more. Asks nobody. */
    bool observe(const void *address, const MemoryInfo &info, std::vector<MemoryInfo> *gone);

private:
    using Allocations = IntervalMap<MemoryInfo>;

    void remove(uintptr_t begin, uintptr_t end, std::vector<MemoryInfo> *gone);

    std::mutex mutex_;
    Allocations allocations_;
    std::atomic<bool> empty_{true};  // written with mutex_ held
    BufferIds ids_;                  // of allocations_, most of them; changed with mutex_ held
};

}  // namespace gpushm
