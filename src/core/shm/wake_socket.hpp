// SPDX-License-Identifier: BSD-3-Clause
// How the owner of a mailbox is woken: an empty datagram to a socket whose name follows from the
// mailbox's cookie. A process needs one descriptor to be woken and one to wake all its peers, and
// what is sent to a mailbox that is gone reaches nobody.
#pragma once

#include "core/base/process.hpp"
#include "core/base/unique_fd.hpp"

#include <optional>

namespace gpushm {

/** The sleeper's side. One thread at a time. */
class WakeSocket {
public:
    /** For the mailbox `cookie`. Empty, logged, when there is no descriptor left. */
    static std::optional<WakeSocket> create(const Cookie &cookie);

    /** Readable when somebody has called wake(), or anybody of this network namespace has sent
     * here: whoever wakes up looks whether there is work. */
    int fd() const { return socket_.get(); }
    /** Until fd() is not readable, unless somebody goes on sending: then the owner wakes once more
     * than it needs to. */
    void drain();

private:
    explicit WakeSocket(UniqueFd socket) : socket_(std::move(socket)) {}
    UniqueFd socket_;
};

/** Makes what wake() needs; false when there is no descriptor left. Costs nothing when it was made
 * before. Thread safe. */
bool can_wake();

/** Wakes the owner of the mailbox `cookie`, after can_wake() has returned true. Never waits. One
 * system call; more when hundreds sleep whom this process has woken, and a descriptor then. Thread
 * safe. */
void wake(const Cookie &cookie);

}  // namespace gpushm
