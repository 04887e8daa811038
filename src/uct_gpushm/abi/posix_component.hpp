// SPDX-License-Identifier: BSD-3-Clause
// UCX's own transport posix, which allocates 4.2 MB of /dev/shm in each process.
#pragma once

namespace gpushm::abi {

/** Removes posix from the running UCX: with a small or read-only /dev/shm it makes
 * ucp_worker_create fail, and gpushm serves the same messages. posix stays if the user names
 * transports (UCX_TLS=posix,gpushm) or excludes gpushm. */
void leave_out_posix();

}  // namespace gpushm::abi
