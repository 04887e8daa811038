// SPDX-License-Identifier: BSD-3-Clause
#include "channel.hpp"

#include "check.hpp"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace gpushm::ucp_test {

Channel::~Channel() {
    if (socket_ >= 0) {
        close(socket_);
    }
}

void Channel::send(const std::string &message) {
    const uint64_t length = message.size();
    std::string bytes(reinterpret_cast<const char *>(&length), sizeof(length));
    bytes += message;
    if (::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
        fail("the other process is gone");
    }
}

void Channel::read_fully(void *data, size_t length, const Progress &progress) {
    auto *bytes = static_cast<char *>(data);
    while (length != 0) {
        const ssize_t count = recv(socket_, bytes, length, progress ? MSG_DONTWAIT : 0);
        if (count > 0) {
            bytes += count;
            length -= static_cast<size_t>(count);
        } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            progress();
            sched_yield();  // there may be more processes than cores
        } else {
            fail("the other process is gone");
        }
    }
}

std::string Channel::receive(const Progress &progress) {
    uint64_t length = 0;
    read_fully(&length, sizeof(length), progress);
    std::string message(length, '\0');
    read_fully(message.data(), length, progress);
    return message;
}

std::string Channel::exchange(const std::string &message, const Progress &progress) {
    send(message);
    return receive(progress);
}

}  // namespace gpushm::ucp_test
