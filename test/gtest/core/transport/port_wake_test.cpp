// SPDX-License-Identifier: BSD-3-Clause
// Sleeping in poll(2): arm(), no lost wake-up between processes, no sleep while work is under way.
#include "test/gtest/core/transport/port_support.hpp"

#include <poll.h>

#include <cstring>

namespace gpushm {
namespace {

using namespace test;

bool readable(Port &port, int timeout_ms) {
    pollfd event = {port.event_fd(), POLLIN, 0};
    return poll(&event, 1, timeout_ms) == 1;
}

/** Progresses and sleeps as UCX does; false when a wake-up was lost. */
template <typename Condition>
bool sleep_until(TestPort &port, Condition condition, uint64_t *sleeps) {
    const Deadline deadline;
    while (!condition()) {
        if (deadline.passed()) {
            return false;
        }
        if (port->progress() != 0 || condition()) {
            continue;
        }
        if (!port->arm()) {
            std::this_thread::yield();
            continue;
        }
        ++*sleeps;
        if (!readable(*port, 10000)) {
            return false;
        }
    }
    return true;
}

TEST(PortWake, ArmIsRefusedWhileWorkIsUnderWay) {
    TestPort a;
    TestPort b;
    Connection &connection = a.connection(b);
    std::vector<unsigned char> local(500000);
    std::vector<unsigned char> memory(500000);
    const Registration registration(memory.data(), memory.size());
    EXPECT_TRUE(a->arm());
    EXPECT_TRUE(b->arm());
    Outcome put;
    ASSERT_EQ(
        connection.put(local.data(), local.size(), registration.at(), nullptr, put.completion()),
        Status::in_progress);
    while (!put.done()) {
        EXPECT_FALSE(a->arm());
        a->progress();
        b->progress();
    }
    settle({&a, &b});
    EXPECT_TRUE(a->arm());
    // The peer that replies has work as long as chunks are left.
    Outcome get;
    ASSERT_EQ(
        connection.get(local.data(), local.size(), registration.at(), nullptr, get.completion()),
        Status::in_progress);
    b->progress();
    EXPECT_FALSE(b->arm());
    ASSERT_TRUE(progress_until({&a, &b}, [&] { return get.done(); }));
    settle({&a, &b});
    EXPECT_TRUE(b->arm());
    ASSERT_EQ(connection.am_short(1, 0, nullptr, 0), Status::ok);
    EXPECT_TRUE(readable(*b, 0));
    EXPECT_FALSE(b->arm()) << "a message waits";
    settle({&b});
    EXPECT_TRUE(b->arm());
    EXPECT_FALSE(readable(*b, 0));
}

/** Echoes messages; every seventh is answered after a get of its sender's memory. */
struct Echo {
    explicit Echo(TestPort &own) : port(own) {
        port.on_message = [this](uint8_t, const unsigned char *data, size_t) {
            memcpy(&last, data, sizeof(last));
            ++received;
        };
    }
    TestPort &port;
    uint64_t last = 0;
    uint64_t received = 0;
    uint64_t sleeps = 0;
};

bool play(Echo &self, Connection &connection, const RemoteMemory &remote, uint64_t rounds,
          bool first) {
    for (uint64_t round = 0; round < rounds; ++round) {
        const auto received = [&] { return self.received > round; };
        if (!first && !sleep_until(self.port, received, &self.sleeps)) {
            return false;
        }
        if (round % 7 == 3) {
            unsigned char bytes[20000];
            Outcome get;
            if (connection.get(bytes, sizeof(bytes), remote, nullptr, get.completion()) !=
                    Status::in_progress ||
                !sleep_until(
                    self.port, [&] { return get.done(); }, &self.sleeps) ||
                get.status != Status::ok ||
                pattern_mismatch(bytes, sizeof(bytes), 1) != sizeof(bytes)) {
                return false;
            }
        }
        if (connection.am_short(1, round, nullptr, 0) != Status::ok) {
            return false;
        }
        if (first && (!sleep_until(self.port, received, &self.sleeps) || self.last != round)) {
            return false;
        }
    }
    return true;
}

TEST(PortWake, NoWakeUpIsLostBetweenProcesses) {
    const uint64_t rounds = kSanitized ? 2000 : 10000;
    std::vector<unsigned char> memory(20000);
    fill_pattern(memory.data(), memory.size(), 1);
    TestPort port;
    Echo self(port);
    const Registration registration(memory.data(), memory.size());
    const MailboxAddress own = port->address();
    const RemoteMemory remote = registration.at();
    Child peer([&](const Channel &channel) {
        // The registration is good here too: the forked process has a copy of table and memory.
        TestPort other;
        channel.send(other->address());
        Echo echo(other);
        const bool right = play(echo, other.connection(own), remote, rounds, false);
        channel.send(right);
        char end;
        channel.receive(&end);
        return right ? 0 : 1;
    });
    MailboxAddress address;
    ASSERT_TRUE(peer.channel().receive(&address));
    EXPECT_TRUE(play(self, port.connection(address), remote, rounds, true));
    EXPECT_GT(self.sleeps, rounds / 100) << "nobody ever slept: the test shows nothing";
    // Its last transfer may need an answer.
    bool right = false;
    progress_until({&port}, [&] {
        return port->progress() == 0 && port->idle() && peer.channel().receive(&right);
    });
    peer.channel().send('e');
    EXPECT_EQ(peer.reap(), 0);
}

}  // namespace
}  // namespace gpushm
