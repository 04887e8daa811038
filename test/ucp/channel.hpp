// SPDX-License-Identifier: BSD-3-Clause
// The socket between the two processes of a test, beside UCX.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace gpushm::ucp_test {

/** Called again and again while the other process is waited for. */
using Progress = std::function<void()>;

class Channel {
public:
    /** A connected stream socket, which belongs to the channel; -1 for a process that is alone. */
    explicit Channel(int socket) : socket_(socket) {}
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    void send(const std::string &message);
    /** The next message. Fails the test when the other process is gone. */
    std::string receive(const Progress &progress);

    /** Gives the other process our message and returns the one that it gives. */
    std::string exchange(const std::string &message, const Progress &progress);
    /** Returns when both processes are here. */
    void barrier(const Progress &progress) { exchange("", progress); }

private:
    void read_fully(void *data, size_t length, const Progress &progress);

    int socket_;
};

}  // namespace gpushm::ucp_test
