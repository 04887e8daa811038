// SPDX-License-Identifier: BSD-3-Clause
// Other processes of the node: which node and user this is, and whether a peer still lives.
#pragma once

#include "core/base/unique_fd.hpp"

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace gpushm {

/** Identifies a host: the boot, the PID namespace, and the network namespace. Equal in two
 * processes only if one can find the other by its PID.
 *
 * Peers are reached through /proc/PID, so the PID namespace must be equal. UCX's posix and cma
 * compare it too (UCX 1.22 src/uct/sm). The network namespace is policy: a container with a
 * network of its own counts as another host even where it shares the PIDs of the machine, as for
 * the loopback devices of UCX's tcp (src/uct/tcp/tcp_iface.c, uct_tcp_iface_is_reachable_v2). */
uint64_t node_identity();

/** 128 random bits that tell two objects apart, even when a PID or a descriptor is used again. */
struct Cookie {
    uint64_t low = 0;
    uint64_t high = 0;

    static Cookie random();
    bool operator==(const Cookie &other) const { return low == other.low && high == other.high; }
};

/** One cookie for the whole process. A forked child has another one. Thread safe. */
const Cookie &process_cookie();

/** Watches one process by a pidfd (pidfd_open(2), Linux 5.3), which a later process with the PID
 * cannot be confused with. All watches of one process share the descriptor. Where the system has no
 * pidfd, or no descriptor is left, kill(pid, 0) stands in, which takes a zombie for alive. One
 * thread at a time. */
class ProcessWatch {
public:
    /** Thread safe. */
    explicit ProcessWatch(pid_t pid);
    /** One system call. */
    bool alive() const;

private:
    pid_t pid_;
    mutable std::shared_ptr<const UniqueFd> pidfd_;  // null: none yet
};

}  // namespace gpushm
