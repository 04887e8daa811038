// SPDX-License-Identifier: BSD-3-Clause
// A little GPU memory of this process that peers map before there is a message.
#pragma once

#include "core/memory/buffer_key.hpp"

#include <optional>

namespace gpushm {

/** The first mapping of a process sets up more than itself: 3 to 10 ms, later ones 0.2 (H200,
 * driver 580). So a peer is told of memory that it may map while it waits for something else.
 * Allocated at the first call that finds a context of the application's (context_in_use()), and
 * kept as long as that. Empty: there is none, or none yet, or the driver lets nobody map it. The
 * caller has a ContextLifetimeLock and a peer that waits for it. Thread safe. */
std::optional<BufferKey> announced_memory();

}  // namespace gpushm
