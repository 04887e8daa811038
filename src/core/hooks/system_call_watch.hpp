// SPDX-License-Identifier: BSD-3-Clause
// A hook that sees host memory go away by a system call that libucm does not report.
#pragma once

#include "core/cuda/driver_patch.hpp"

namespace gpushm {

/** Hooks syscall() of the C library, and process_madvise() where it has it. KnownHostPages and
 * HostRegistrationCache are told of memory before it goes away.
 *
 * libucm reports munmap(), mmap() over something, mremap(), madvise(), brk() and the like, but not
 * all that they can do (mremap() to a fixed address before UCX 1.18, madvise() with advice that is
 * newer than libucm). It makes the system calls of the functions that it has changed by syscall(),
 * so this hook sees all of them. It misses a system call instruction of the program itself, as Go
 * programs have, and requests of an io_uring.
 *
 * False when the functions cannot be hooked, or functions of the C library do not pass the hook:
 * then nothing may be page-locked, and no page is known. For a process in which libucm watches
 * memory already. Later calls return what the first one did. Thread safe. */
bool watch_system_calls(PatchFunction patch);

/** What watch_system_calls() has returned. */
bool system_calls_are_watched();

}  // namespace gpushm
