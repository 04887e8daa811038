// SPDX-License-Identifier: BSD-3-Clause
// From one GPU to another where neither can map the other's memory: a pipeline through page-locked
// shared memory. Both halves are driven by one process, so it pays nothing for telling a peer.
#pragma once

#include "raw_operations.hpp"

#include <cstdint>

namespace gpushm::perf {

std::unique_ptr<RawOperation> make_staged_copy(const RawSettings &settings, uint64_t seed);

}  // namespace gpushm::perf
