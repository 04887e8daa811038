// SPDX-License-Identifier: BSD-3-Clause
// GPU memory of gpushm itself that peers may map.
#pragma once

#include "core/memory/buffer_key.hpp"
#include "core/reclaim/context_in_use.hpp"

#include <cstddef>
#include <optional>

namespace gpushm {

/** Memory of the GPU of that context. Empty, not logged: the context has ended, or the driver gives
 * none, or does not let it be mapped. The caller has a ContextLifetimeLock. Thread safe. */
std::optional<BufferKey> allocate_shareable(const ContextInUse &context, size_t bytes);

/** Frees what allocate_shareable() has given, later, because the driver would wait for all work of
 * the context. Nothing copies to or from the memory any more. Thread safe. */
void free_shareable(const ContextInUse &context, const BufferKey &memory);

}  // namespace gpushm
