// SPDX-License-Identifier: BSD-3-Clause
// Calls of the driver for which nobody should wait.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>

namespace gpushm {

/** Calls `task` in a thread of its own, in the order of these calls; at once when no thread can be
 * had. What is left when the process ends is not done, and nothing is in a child forked by a
 * process that has had such tasks: the driver does not work there, and what is to be freed is the
 * parent's. Thread safe. */
void run_in_background(std::function<void()> task);

/** For what frees memory of a context: the driver waits for all its work, and keeps all other
 * threads from it meanwhile (idle_context.hpp). So it is called when the context has nothing to do,
 * by a thread that waits for messages (free_idle_memory()), for then a program of one thread cannot
 * start a kernel; and in the background where for a while none has waited. A context that is never
 * idle keeps its tasks (one that has ended does not): whoever makes new ones looks at
 * waiting_for_idle(). No context ends in the midst of such a task. Where that cannot be had
 * (work_is_known()), as run_in_background(). `id`: context_id() when the context was alive. */
void run_when_idle(CUcontext context, unsigned long long id, std::function<void()> task);

/** How many tasks of run_when_idle() wait, of all contexts. Thread safe. */
size_t waiting_for_idle();

/** Does what waits for contexts that are idle, unless another thread does. For threads that wait
 * for messages, now and then; costs a load when nothing waits. */
void free_idle_memory();

}  // namespace gpushm
