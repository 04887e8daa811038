// SPDX-License-Identifier: BSD-3-Clause
// Copies between any kinds of memory, whoever has to do them: a GPU or the CPU.
#pragma once

#include "core/copy/copy_engine.hpp"

#include <cstddef>

namespace gpushm {

/** Starts a copy between any two kinds of memory; as CopyEngine::start, and ok at once where no GPU
 * is needed. */
Status start_any(CopyEngine &engine, void *destination, const void *source, size_t length,
                 CopyTicket *ticket);

/** Copies `length` bytes between any two kinds of memory and waits; for callers from any thread,
 * each call takes an idle engine of a common pool. ok or gpu_error, logged. */
Status copy_any(void *destination, const void *source, size_t length);

}  // namespace gpushm
