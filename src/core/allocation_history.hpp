// SPDX-License-Identifier: BSD-3-Clause
// GPU allocations that were seen, to notice when one of them is gone.
#pragma once

#include "core/memory_info.hpp"

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace gpushm {

struct Allocation {
    void *base = nullptr;
    size_t length = 0;  // bytes
    MemoryKind kind = MemoryKind::host;
    unsigned long long buffer_id = 0;
    bool fresh = false;  // it was not known before this call
};

/** UCP keeps registrations by address, and nobody tells it that GPU memory was freed: an address that is
 *  allocated again, as another kind perhaps, would meet the registration of what was there before.
 *  Every buffer passes here before UCP looks for a registration; what its address contradicts is
 *  reported as gone. Thread safe. */
class AllocationHistory {
public:
    /** What is known of `address`, of which the driver says `info`: true with its allocation for GPU
     *  memory, false for host memory. `gone` receives the allocations that were seen at these
     *  addresses earlier and do not exist any more. One driver call for an allocation that is new,
     *  none otherwise. */
    bool observe(const void *address, const MemoryInfo &info, Allocation *allocation,
                 std::vector<Allocation> *gone);

private:
    using Allocations = std::map<const unsigned char *, Allocation>;  // by base, disjoint

    Allocations::iterator find(const unsigned char *address);
    void remove_overlapping(const Allocation &allocation, std::vector<Allocation> *gone);

    std::mutex mutex_;
    Allocations allocations_;
};

}  // namespace gpushm
