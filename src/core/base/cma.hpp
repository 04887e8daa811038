// SPDX-License-Identifier: BSD-3-Clause
// Copies between the memory of two processes by the operating system (cross memory attach, CMA;
// Linux 3.2).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** process_vm_readv(2), process_vm_writev(2): `length` bytes between `local` and `remote` of
 * process `pid`. False when the system does not allow it (no right to attach: ptrace_scope of
 * Yama, seccomp, another user namespace) or the memory is not there; some of the bytes may have
 * been copied then. */
bool read_memory(pid_t pid, void *local, uint64_t remote, size_t length);
bool write_memory(pid_t pid, const void *local, uint64_t remote, size_t length);

}  // namespace gpushm
