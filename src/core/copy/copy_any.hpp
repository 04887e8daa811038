// SPDX-License-Identifier: BSD-3-Clause
// Copies between any kinds of memory, by a GPU or by the CPU.
#pragma once

#include "core/copy/copy_engine.hpp"
#include "core/copy/copy_operands.hpp"

#include <cstddef>

namespace gpushm {

/** The job of a copy that a GPU makes, by what copy_sides() says of both buffers. `sides` must live
 * until the job is started. The job knows which message this thread hands out (MessageInHand). */
CopyJob job_between(void *destination, const void *source, size_t length, const CopySides &sides);

/** Starts a copy between any two kinds of memory, like CopyEngine::start(). Returns ok at once
 * where the CPU copies. */
Status start_any(CopyEngine &engine, void *destination, const void *source, size_t length,
                 CopyTicket *ticket);

/** Copies `length` bytes between any two kinds of memory and waits. Returns ok or gpu_error,
 * logged. Thread safe: each call takes an idle engine of a common pool. */
Status copy_any(void *destination, const void *source, size_t length);

}  // namespace gpushm
