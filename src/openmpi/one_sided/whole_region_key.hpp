// SPDX-License-Identifier: BSD-3-Clause
// What osc/ucx and other processes get for a WholeRegion: handles that UCX did not make, and a key.
#pragma once

#include "openmpi/one_sided/region_log.hpp"

#include <cstdint>

namespace gpushm::openmpi {

/** Handles that gpushm gives to osc/ucx in place of those of UCX. UCX's are addresses of
 * structures, so an odd value is never one of them. */
template <typename Handle, typename Object>
Handle to_handle(Object *object) {
    return reinterpret_cast<Handle>(reinterpret_cast<uintptr_t>(object) | 1);
}
template <typename Handle>
bool is_ours(Handle handle) {
    return (reinterpret_cast<uintptr_t>(handle) & 1) != 0;
}
template <typename Object, typename Handle>
Object *from_handle(Handle handle) {
    return reinterpret_cast<Object *>(reinterpret_cast<uintptr_t>(handle) & ~uintptr_t{1});
}

/** How a process finds the attached regions of another one. Processes exchange it when the window
 * is made. */
struct RemoteIndex {
    uint64_t id = 0;  // of the WholeRegion, in the process that made it; 0: that process has none
    PackedRegion region;
};

/** Stands for the packed remote key of a WholeRegion. No packed key of UCX begins with `kMark`:
 * they begin with a bit map of memory domains, which has few bits. */
struct WholeKey {
    static constexpr uint64_t kMark = 0xd1a3c6e5b7f92d4b;
    uint64_t mark;
    uint64_t id;  // RemoteIndex::id
};

}  // namespace gpushm::openmpi
