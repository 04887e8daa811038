// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/wake_socket.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>

namespace gpushm {
namespace {

constexpr char kPurpose[] = "wake";

int make_socket() {
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

struct SocketMutex : std::mutex {};

/** The socket by which this process wakes others; -1 when there is none. It is never closed,
 * because another thread may be about to use it. */
int sending_socket() {
    static int made = -1;
    const std::lock_guard<std::mutex> lock(ForkSafe<SocketMutex>::instance());
    if (made < 0) {
        made = make_socket();
    }
    return made;
}

/** False when there is no room to send. A datagram to a socket that is gone need not be sent. */
bool send_nothing(int from, const sockaddr_un &address, socklen_t length) {
    return sendto(from, nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr *>(&address), length) >= 0 ||
           errno != EAGAIN;
}

}  // namespace

std::optional<WakeSocket> WakeSocket::create(const Cookie &cookie) {
    // The sending socket is made now, too: there may be no descriptor left when a peer connects.
    UniqueFd made = can_wake() ? bind_abstract(kPurpose, cookie) : UniqueFd();
    if (!made) {
        GPUSHM_LOG(warn,
                   "cannot make a socket to be woken by (%s): raise the limit of open files "
                   "(ulimit -n)",
                   strerror(errno));
        return std::nullopt;
    }
    return WakeSocket(std::move(made));
}

void WakeSocket::drain() {
    constexpr unsigned kMaxDatagrams =
        1024;  // more than a socket usually holds (net.unix.max_dgram_qlen)
    char nothing;
    for (unsigned i = 0;
         i < kMaxDatagrams && recv(socket_.get(), &nothing, sizeof(nothing), MSG_DONTWAIT) >= 0;
         ++i) {
    }
}

bool can_wake() {
    return sending_socket() >= 0;
}

void wake(const Cookie &cookie) {
    sockaddr_un address;
    const socklen_t length = abstract_address(kPurpose, cookie, &address);
    if (!send_nothing(sending_socket(), address, length)) {
        // Unread datagrams of the shared socket fill its send buffer; 278 sleepers are enough for
        // that. From a new socket only the queue of the owner can be full, and then it wakes
        // anyway.
        const UniqueFd fresh(make_socket());
        send_nothing(fresh.get(), address, length);
    }
}

}  // namespace gpushm
