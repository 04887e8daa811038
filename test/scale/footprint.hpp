// SPDX-License-Identifier: BSD-3-Clause
// What a group of processes takes of the node.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace gpushm::scale_test {

struct Footprint {
    size_t processes = 0;
    size_t memory_kib = 0;   // touched by all, shared pages once (Pss of /proc/PID/smaps_rollup)
    size_t segment_kib = 0;  // of all segments of gpushm, touched or not, each once
    size_t segments = 0;
    size_t most_descriptors = 0;  // of one process
    size_t most_mappings = 0;     // of one process; see vm.max_map_count
    size_t most_attached = 0;     // segments of gpushm that one process has mapped, its own too
    size_t largest_mib = 0;       // address space of one process
    double seconds = 0;           // when it was measured; for the caller
};

/** Processes of this user that do not change meanwhile. */
Footprint measure(const std::vector<pid_t> &pids);

/** A table with a column for each. */
void print_table(const std::vector<const char *> &titles, const std::vector<Footprint> &columns);

}  // namespace gpushm::scale_test
