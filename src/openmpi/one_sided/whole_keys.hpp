// SPDX-License-Identifier: BSD-3-Clause
// Remote keys of whole regions, by which osc/ucx reaches whatever is attached to a dynamic window.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/one_sided/whole_region.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gpushm::openmpi {

/** Handles of ours among those of UCX, which are addresses of structures: ours are odd. */
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

/** The libraries that osc/ucx may be in, or has inline functions of. */
const std::vector<std::string> &libraries_of_windows();

/** Keys of these processes can be unpacked from now on. */
void add_indexes(const std::vector<RemoteIndex> &indexes);

/** Their keys are not used any more, unpacked ones included. */
void remove_indexes(const std::vector<uint64_t> &ids);

void redirect_whole_keys(CallRedirection *redirection);

}  // namespace gpushm::openmpi
