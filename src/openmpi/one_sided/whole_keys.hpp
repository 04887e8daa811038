// SPDX-License-Identifier: BSD-3-Clause
// Remote keys of whole regions. With them osc/ucx reaches all memory that a process has attached to
// a dynamic window: each operation is forwarded with the key of the region that it accesses.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/one_sided/whole_region_key.hpp"

#include <cstdint>
#include <vector>

namespace gpushm::openmpi {

/** From now on keys of these processes can be unpacked. Thread safe. */
void add_indexes(const std::vector<RemoteIndex> &indexes);

/** Releases their unpacked keys, which are no longer used. Thread safe. */
void remove_indexes(const std::vector<uint64_t> &ids);

/** The functions of UCP to replace in osc/ucx. */
std::vector<ReplacedCall> whole_key_calls();

}  // namespace gpushm::openmpi
