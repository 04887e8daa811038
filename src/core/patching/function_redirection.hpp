// SPDX-License-Identifier: BSD-3-Clause
// Makes functions of other libraries begin with a jump to ours.
#pragma once

namespace gpushm {

/** Makes every call of `function` go to `replacement`: calls from any library, by a pointer, and
 * from within its own library.
 *
 * `*original` then does what `function` did; it is set before the first redirected call. This works
 * for functions on x86-64 that a symbol of their library names, that are aligned to 16 bytes, and
 * whose first instructions can be moved. Otherwise, and for a function that is redirected already,
 * it changes nothing and returns false. A redirection is never undone: `replacement` must stay for
 * the life of the process. Other threads may be about to call the function, but no thread may be
 * within its first instructions. Thread safe. */
bool redirect_function(void *function, void *replacement, void **original);

/** A function that does what `function` did before any redirection, also one that comes later.
 * `function` itself where redirect_function() cannot change it. Thread safe. */
void *original_function(void *function);

}  // namespace gpushm
