// SPDX-License-Identifier: BSD-3-Clause
// Calls of the driver that free memory, made at a moment at which nobody has to wait for them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>

namespace gpushm {

/** Calls `task` in a background thread, in the order of these calls; at once, in this thread, when
 * no thread can be started. Tasks that are left when the process ends are not run. In a child
 * forked by a process that has had such tasks none is run: the driver does not work there, and what
 * is to be freed is the parent's. Thread safe. */
void run_in_background(std::function<void()> task);

/** Calls `task`, which frees memory of a context, when the context is quiescent (is_quiescent()):
 * otherwise the driver makes the caller wait for all work of the context, and keeps all other
 * threads from it meanwhile.
 *
 * A thread that waits for messages runs the task (run_deferred_frees()), because a program of one
 * thread cannot start a kernel then, and so does one that needs what it frees
 * (run_deferred_frees_now()). The background thread runs it if no thread has called
 * run_deferred_frees() for a while. A context that is never quiescent keeps its tasks until it
 * ends, so callers that make new tasks check deferred_free_count(). No context ends during such a
 * task. Where quiescence_is_known() is false, the task goes to run_in_background().
 *
 * `id`: context_id() when the context was alive. Thread safe. */
void defer_free(CUcontext context, unsigned long long id, std::function<void()> task);

/** How many tasks of defer_free() wait, of all contexts. Thread safe. */
size_t deferred_free_count();

/** Runs tasks of defer_free() whose contexts are quiescent, unless another thread does. For threads
 * that wait for messages, now and then; one load when no task waits. */
void run_deferred_frees();

/** Runs tasks of contexts that are quiescent now, for about 2 ms at most, whenever the last look
 * was. For a caller that needs what they free, and that has a ContextLifetimeLock. */
void run_deferred_frees_now();

}  // namespace gpushm
