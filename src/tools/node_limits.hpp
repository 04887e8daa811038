// SPDX-License-Identifier: BSD-3-Clause
// What the operating system lets processes of one user share on this node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpushm::tools {

struct NodeLimits {
    /** The size of /dev/shm. Empty: there is none. */
    std::optional<uint64_t> shm_size_bytes;
    std::optional<uint64_t> shm_free_bytes;
    /** Soft limits; empty: unlimited. */
    std::optional<uint64_t> locked_memory_bytes;
    std::optional<uint64_t> open_files;
    /** errno of memfd_create(2), which makes shared memory; 0: it works. If it fails, the tests
     * below are not made. */
    int memory_file_error = 0;
    /** errno of a process that opens another process's memory file as /proc/PID/fd/N, as peers do
     * to attach; 0: it works. */
    int attach_error = 0;
    /** errno of process_vm_readv(2) of another process, UCX's "cma"; 0: it works. */
    int cma_error = 0;
    /** The PID namespace, "pid:[4026531836]", which peers must share. Empty: there is no /proc. */
    std::string pid_namespace;
};

/** Tests with two child processes. The caller must have one thread only. */
NodeLimits look_at_node();

}  // namespace gpushm::tools
