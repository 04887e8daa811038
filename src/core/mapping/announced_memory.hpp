// SPDX-License-Identifier: BSD-3-Clause
// A little GPU memory of this process whose mappings keep the access of peers to its GPU.
#pragma once

#include "core/memory/buffer_key.hpp"

#include <optional>

namespace gpushm {

/** The first mapping of memory of another GPU sets up the access to it, and the last one ends it
 * (doc/decisions/mapping-costs.md). So a peer is told of memory that it may map while it waits for
 * something else, and that stays.
 *
 * The memory is allocated at the first call that finds a context of the application
 * (context_in_use()), and kept as long as that context. Empty: there is no such context yet, or the
 * driver does not let the memory be mapped. The caller has a ContextLifetimeLock and a peer that
 * waits for the memory. Thread safe. */
std::optional<BufferKey> announced_memory();

}  // namespace gpushm
