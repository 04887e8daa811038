// SPDX-License-Identifier: BSD-3-Clause
// Other processes of the node: which node and user this is, and whether a peer still lives.
#pragma once

#include "core/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>

namespace gpushm {

/** Identifies where /proc/PID means the same processes: the kernel's boot, the PID namespace. Equal
 *  on two processes if and only if one can find the other by its PID. */
uint64_t node_identity();

/** 128 random bits that tell two objects apart, even when a PID or a descriptor is used again. */
struct Cookie {
    uint64_t low = 0;
    uint64_t high = 0;

    static Cookie random();
    bool operator==(const Cookie &other) const { return low == other.low && high == other.high; }
};

/** Watches one process by a pidfd (pidfd_open(2), Linux 5.3), which cannot be confused by a PID that
 *  is used again. Where the kernel has none, kill(pid, 0) stands in. */
class ProcessWatch {
public:
    explicit ProcessWatch(pid_t pid);
    /** One system call. */
    bool alive() const;

private:
    pid_t pid_;
    UniqueFd pidfd_;
};

}  // namespace gpushm
