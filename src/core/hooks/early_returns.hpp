// SPDX-License-Identifier: BSD-3-Clause
// Hooks of calls of the application that return before their copy or memset is done, of the work
// that it starts after them, and of its waits for them.
#pragma once

#include "core/base/byte_range.hpp"
#include "core/cuda/driver_patch.hpp"

namespace gpushm {

/** Notes a call that has returned `result` before it is done. `of_thread`: the form that uses the
 * default stream of the thread. Copies of gpushm (OwnCopies) are not noted, because their owners
 * wait for them. */
void note_early_return(CUresult result, const TouchedBytes &touched, bool of_thread);

/** Copies within and between devices, from and to arrays, and memsets. Only if all are hooked, no
 * message is earlier than one of them. */
Hooks early_return_hooks();

/** Launches of kernels, for which no message may wait. */
Hooks launch_hooks();

/** Other work that a program starts after such calls, and its waits for a default stream. Where one
 * of these is not hooked, a message may wait longer than it must. */
Hooks other_separating_hooks();

}  // namespace gpushm
