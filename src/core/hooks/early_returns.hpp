// SPDX-License-Identifier: BSD-3-Clause
// Hooks of calls of the application that return before their copy or memset is done, of the work
// that it starts after them, and of its waits for them.
#pragma once

#include "core/cuda/driver_patch.hpp"
#include "core/cuda/unfinished_copies.hpp"

#include <initializer_list>
#include <vector>

namespace gpushm {

/** Notes a call that has returned `result` before it is done. `addresses` has the first and the
 * last byte of each side, because a side may lie in more than one allocation. `of_thread`: the
 * form that uses the default stream of the thread. Copies of gpushm (OwnCopies) are not noted,
 * because their owners wait for them. */
void note_early_return(CUresult result, std::initializer_list<const void *> addresses,
                       bool of_thread);

/** Copies within and between devices, from and to arrays, and memsets. Only if all are hooked, no
 * message is earlier than one of them. */
const std::vector<Hook> &early_return_hooks();

/** Launches of kernels, for which no message may wait. */
const std::vector<Hook> &launch_hooks();

/** Other work that a program starts after such calls, and its waits for a default stream. Where one
 * of these is not hooked, a message may wait longer than it must. */
const std::vector<Hook> &other_separating_hooks();

}  // namespace gpushm
