// SPDX-License-Identifier: BSD-3-Clause
#include "core/wake_socket.hpp"

#include "core/abstract_address.hpp"
#include "core/log.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>

namespace gpushm {
namespace {

constexpr char kPurpose[] = "wake";

/** The socket of this process that wakes others; -1 when there is none. It is never closed: another
 *  thread may be about to use it. */
int sending_socket() {
    static std::mutex mutex;
    static int made = -1;
    const std::lock_guard<std::mutex> lock(mutex);
    if (made < 0) {
        made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    return made;
}

}  // namespace

std::optional<WakeSocket> WakeSocket::create(const Cookie &cookie) {
    // The other one now too: there may be no descriptor left when a peer connects.
    UniqueFd made = can_wake() ? bind_abstract(kPurpose, cookie) : UniqueFd();
    if (!made) {
        GPUSHM_LOG(warn, "cannot make a socket to be woken by (%s): raise the limit of open files "
                   "(ulimit -n)", strerror(errno));
        return std::nullopt;
    }
    return WakeSocket(std::move(made));
}

void WakeSocket::drain() {
    char nothing;
    while (recv(socket_.get(), &nothing, sizeof(nothing), MSG_DONTWAIT) >= 0) {
    }
}

bool can_wake() { return sending_socket() >= 0; }

void wake(const Cookie &cookie) {
    sockaddr_un address;
    const socklen_t length = abstract_address(kPurpose, cookie, &address);
    // A full queue (EAGAIN) wakes the owner as well; one that is gone needs no waking.
    (void)!sendto(sending_socket(), nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL,
                  reinterpret_cast<sockaddr *>(&address), length);
}

}  // namespace gpushm
