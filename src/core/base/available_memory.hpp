// SPDX-License-Identifier: BSD-3-Clause
// How much memory there is to have, before it is asked for: the kernel answers a demand that is too
// large not by an error but by the OOM killer.
#pragma once

#include <cstddef>
#include <string>

namespace gpushm {

/** Bytes that this process can still get: of what the node has left (/proc/meminfo), within what
 * its memory cgroups leave it. SIZE_MAX when neither is known. */
size_t available_memory();

/** Bytes that the memory cgroups of a process leave it, with what can be dropped for it (caches of
 * files). `membership` is its file /proc/PID/cgroup; `mount` the folder where the hierarchies are
 * mounted, /sys/fs/cgroup. Both versions of cgroups(7). SIZE_MAX when there is no limit. */
size_t left_in_cgroups(const std::string &membership, const std::string &mount);

}  // namespace gpushm
