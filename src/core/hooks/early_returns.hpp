// SPDX-License-Identifier: BSD-3-Clause
// Calls of the application that return before their copy or memset is done, what it starts behind
// them, and how it waits for them.
#pragma once

#include "core/cuda/driver_patch.hpp"
#include "core/cuda/unfinished_copies.hpp"

#include <initializer_list>
#include <vector>

namespace gpushm {

/** Such a call has returned `result`; it touches memory at `addresses`, among them the first and
 * the last byte of each side: a side may lie in more than one allocation. `of_thread`: the form
 * that uses the default stream of the thread. Copies of our own (OwnCopies) are not noted: their
 * owners wait for them. */
void note_early_return(CUresult result, std::initializer_list<const void *> addresses,
                       bool of_thread);

/** Copies within and between devices, from and to arrays, and memsets. Messages are late for none
 * of them only if all are hooked. */
const std::vector<Hook> &early_return_hooks();

/** Kernels that are launched behind them, for which no message may wait. */
const std::vector<Hook> &launch_hooks();

/** Whatever else is put behind them, and waits for a default stream. Without one of these a message
 * waits for more than it has to where a program uses it. */
const std::vector<Hook> &other_separating_hooks();

}  // namespace gpushm
