// SPDX-License-Identifier: BSD-3-Clause
// Functions of other libraries that begin with a jump to one of ours, whoever calls them.
#pragma once

namespace gpushm {

/** Has every call of `function` go to `replacement`: from any library, by a pointer, and from
 * within its own library.
 * `*original`, which is set before the first such call, does what `function` did. It works for
 * functions on x86-64 that a symbol of their library names, that are aligned to 16 bytes, and whose
 * first instructions can be moved; otherwise, and for one that is redirected already, it changes
 * nothing and returns false. Nothing of it is undone: `replacement` must stay for the life of the
 * process. Other threads may be about to call the function, but no thread may be within its first
 * instructions. Thread safe. */
bool redirect_function(void *function, void *replacement, void **original);

/** What does what `function` does, and is not redirected with it: what has been redirected, and
 * what will be. The function itself where redirect_function() cannot change it. Thread safe. */
void *original_function(void *function);

}  // namespace gpushm
