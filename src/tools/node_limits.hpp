// SPDX-License-Identifier: BSD-3-Clause
// What this node allows processes of one user to share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpushm::tools {

struct NodeLimits {
    /** Of /dev/shm; empty where it is absent. */
    std::optional<uint64_t> shm_size_bytes;
    std::optional<uint64_t> shm_free_bytes;
    /** Soft limits; empty: unlimited. */
    std::optional<uint64_t> locked_memory_bytes;
    std::optional<uint64_t> open_files;
    /** errno of memfd_create(2), which makes the memory that is shared; 0: works. What follows is
     * then not tried. */
    int memory_file_error = 0;
    /** errno of a process that opens another one's memory file by /proc/PID/fd/N, which is how
     * peers attach; 0: works. */
    int attach_error = 0;
    /** The same for process_vm_readv(2), UCX's "cma". */
    int cma_error = 0;
    /** "pid:[4026531836]"; peers must be in the same. Empty without /proc. */
    std::string pid_namespace;
};

/** Tries what it reports, with two child processes; the caller must have one thread only. */
NodeLimits look_at_node();

}  // namespace gpushm::tools
