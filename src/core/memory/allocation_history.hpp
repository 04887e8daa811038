// SPDX-License-Identifier: BSD-3-Clause
// GPU allocations that were seen, so that the end of one is noticed.
#pragma once

#include "core/base/interval_map.hpp"
#include "core/memory/buffer_ids.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gpushm {

/** UCP keeps registrations by address, and is not told when GPU memory is freed. An address that is
 * allocated again, perhaps as another kind, would meet the registration of the former memory. So
 * every buffer passes here before UCP looks for a registration, and allocations that its address
 * contradicts are reported as gone. Thread safe. */
class AllocationHistory {
public:
    /** `address` is about to be used; `info` is the answer of query_memory(). True when it lies in
     * GPU memory that was not seen before. Adds to `gone` the allocations that were seen at these
     * addresses earlier and do not exist any more. Does not call the driver. */
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
