// SPDX-License-Identifier: BSD-3-Clause
// How much memory this process can still get. Linux answers a demand that is too large not by an
// error but by the OOM killer, so it is asked before.
#pragma once

#include <cstddef>
#include <string>

namespace gpushm {

/** Bytes that this process can still allocate: what the node has left (/proc/meminfo), within the
 * limits of its memory cgroups. SIZE_MAX when neither is known. */
size_t available_memory();

/** Bytes that the memory cgroups of a process leave it, including what the system can drop for it
 * (file caches). `membership` is its file /proc/PID/cgroup; `mount` is the folder where the
 * hierarchies are mounted, /sys/fs/cgroup. Both versions of cgroups(7). SIZE_MAX when there is no
 * limit. */
size_t left_in_cgroups(const std::string &membership, const std::string &mount);

}  // namespace gpushm
