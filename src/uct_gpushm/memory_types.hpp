// SPDX-License-Identifier: BSD-3-Clause
// UCX's memory types that gpushm serves, as bit masks.
#pragma once

#include <ucs/memory/memory_type.h>

#include <cstdint>

namespace gpushm::uct {

constexpr uint64_t memory_type_bit(ucs_memory_type_t type) {
    return uint64_t{1} << type;
}

/** For UCX, pinned host memory is host memory. */
constexpr uint64_t kGpuMemoryTypes =
    memory_type_bit(UCS_MEMORY_TYPE_CUDA) | memory_type_bit(UCS_MEMORY_TYPE_CUDA_MANAGED);
constexpr uint64_t kAllMemoryTypes = memory_type_bit(UCS_MEMORY_TYPE_HOST) | kGpuMemoryTypes;

}  // namespace gpushm::uct
