// SPDX-License-Identifier: BSD-3-Clause
// Wakes the owner of a mailbox: an empty datagram to a socket whose name follows from the cookie of
// the mailbox. A process needs one descriptor to be woken and one to wake all its peers. A datagram
// to a mailbox that is gone is lost.
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

    /** Readable when wake() was called, or any process of this network namespace has sent a
     * datagram here: the sleeper then looks for work. */
    int fd() const { return socket_.get(); }
    /** Reads datagrams until fd() is not readable. If a process keeps sending, it stops, and the
     * owner wakes once too often. */
    void drain();

private:
    explicit WakeSocket(UniqueFd socket) : socket_(std::move(socket)) {}
    UniqueFd socket_;
};

/** Makes the socket that wake() needs; false when no descriptor is left. Costs nothing when the
 * socket exists. Thread safe. */
bool can_wake();

/** Wakes the owner of the mailbox `cookie`. can_wake() must have returned true. Never waits. One
 * system call. When hundreds of processes sleep that this one has woken, it takes some more and a
 * descriptor. Thread safe. */
void wake(const Cookie &cookie);

}  // namespace gpushm
