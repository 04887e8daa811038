// SPDX-License-Identifier: BSD-3-Clause
// Calls of the driver for which nobody should wait.
#pragma once

#include <functional>

namespace gpushm {

/** Calls `task` in a thread of its own, in the order of these calls; at once when no thread can be had.
 *  For what frees memory of the driver: it may wait for all work of the GPU, and that may be a kernel of
 *  the application that waits for a message. What is left when the process ends is not done, and nothing
 *  is in a child forked by a process that has had such tasks: the driver does not work there, and what is to
 *  be freed is the parent's. Thread safe. */
void run_in_background(std::function<void()> task);

}  // namespace gpushm
