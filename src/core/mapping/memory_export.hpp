// SPDX-License-Identifier: BSD-3-Clause
// Giving GPU memory of this process to a peer that wants to map it.
#pragma once

#include "core/mapping/ipc_mapping_cache.hpp"
#include "core/memory/buffer_key.hpp"

#include <optional>

namespace gpushm {

/** A handle for the allocation with that name; empty when it is not there any more or the driver
 * does not give one. */
std::optional<MappingHandle> export_memory(const BufferKey &name);

/** Whether the allocation with that name still exists; one driver call. */
bool still_allocated(const BufferKey &name);

}  // namespace gpushm
