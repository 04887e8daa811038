// SPDX-License-Identifier: BSD-3-Clause
// Being told of host memory that goes away by a system call of which libucm does not tell.
#pragma once

#include "core/cuda/driver_patch.hpp"

namespace gpushm {

/** Hooks the C library's syscall(), and process_madvise() where it has it. KnownHostPages and
 * HostRegistrationCache hear of what goes away before it does.
 *
 * libucm tells of munmap(), mmap() over something, mremap(), madvise(), brk() and their like, but
 * not of all that they can do (mremap() to a fixed address before UCX 1.18, madvise() with advice
 * that is newer than libucm). It makes the system calls of the functions that it has changed by
 * syscall(), so that nothing of that is missed. What is missed: an instruction of the program
 * itself, as Go makes them, and what a ring of io_uring is asked for.
 *
 * False when they cannot be hooked, or functions of the C library do not come by: then nothing may
 * be page-locked, and no page is known. For a process in which libucm watches memory already. Later
 * calls return what the first one did. Thread safe. */
bool watch_system_calls(PatchFunction patch);

/** Whether it did. */
bool system_calls_are_watched();

}  // namespace gpushm
