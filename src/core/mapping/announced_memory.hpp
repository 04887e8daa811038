// SPDX-License-Identifier: BSD-3-Clause
// A little GPU memory of this process that peers map before there is a message.
#pragma once

#include "core/memory/buffer_key.hpp"

#include <optional>

namespace gpushm {

/** The first mapping of a process sets up more than itself and takes much longer than later ones
 * (doc/decisions/mapping-costs.md). So a peer is told of memory that it may map while it waits for
 * something else.
 *
 * The memory is allocated at the first call that finds a context of the application
 * (context_in_use()), and kept as long as that context. Empty: there is no such context yet, or the
 * driver does not let the memory be mapped. The caller has a ContextLifetimeLock and a peer that
 * waits for the memory. Thread safe. */
std::optional<BufferKey> announced_memory();

}  // namespace gpushm
