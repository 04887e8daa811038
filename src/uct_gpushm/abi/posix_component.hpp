// SPDX-License-Identifier: BSD-3-Clause
// UCX's own transport posix, which takes 4.2 MB of /dev/shm in each process.
#pragma once

namespace gpushm::abi {

/** Leaves posix out of the running UCX: where /dev/shm is small or cannot be written to, posix
 * makes ucp_worker_create fail, and gpushm carries what it would carry. It stays where the user
 * names transports (UCX_TLS=posix,gpushm) or excludes gpushm. */
void leave_out_posix();

}  // namespace gpushm::abi
