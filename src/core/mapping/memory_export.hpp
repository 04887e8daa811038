// SPDX-License-Identifier: BSD-3-Clause
// Gives GPU memory of this process to a peer that wants to map it.
#pragma once

#include "core/mapping/ipc_mapping_cache.hpp"
#include "core/memory/buffer_key.hpp"

#include <optional>

namespace gpushm {

/** A handle for the allocation with that key; empty when it does not exist any more or the driver
 * does not give a handle. */
std::optional<MappingHandle> export_memory(const BufferKey &name);

/** Whether the allocation with that key still exists; one driver call. */
bool still_allocated(const BufferKey &name);

}  // namespace gpushm
