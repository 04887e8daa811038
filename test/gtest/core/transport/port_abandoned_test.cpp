// SPDX-License-Identifier: BSD-3-Clause
// Peers that come and go: what a port keeps of them, what it still hears of them.
#include "test/gtest/core/transport/port_support.hpp"

#include <signal.h>

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

using namespace test;

/** What peers cost this process. */
struct Held {
    size_t descriptors = open_descriptors();
    size_t mailboxes = mappings_named("gpushm-mailbox");
    size_t rings = mappings_named("gpushm-ring");
    bool operator==(const Held &other) const {
        return descriptors == other.descriptors && mailboxes == other.mailboxes &&
               rings == other.rings;
    }
};

std::ostream &operator<<(std::ostream &out, const Held &held) {
    return out << held.descriptors << " descriptors, " << held.mailboxes << " mailboxes, "
               << held.rings << " rings";
}

/** What `port` holds when it has noticed what there is to notice. */
Held held_after_settling(TestPort &port) {
    settle({&port});
    port->progress();
    return Held();
}

/** A peer that sends a message, reads `memory` through a ring and ends. */
void visit(TestPort &port, const Registration &memory) {
    TestPort peer;
    Connection &connection = peer.connection(port);
    ASSERT_EQ(connection.am_short(1, 7, nullptr, 0), Status::ok);
    std::vector<unsigned char> local(100000);
    Outcome get;
    ASSERT_EQ(connection.get(local.data(), local.size(), memory.at(), nullptr, get.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&port, &peer}, [&] { return get.done(); }));
    ASSERT_EQ(get.status, Status::ok);
}

TEST(PortAbandoned, NothingIsKeptOfPeersThatHaveGone) {
    TestPort port;
    std::vector<unsigned char> bytes(100000);
    const Registration memory(bytes.data(), bytes.size());
    visit(port, memory);
    const Held before = held_after_settling(port);
    const size_t ring_bytes = port->next_ring_bytes();
    for (int i = 0; i < 5; ++i) {
        visit(port, memory);
    }
    EXPECT_EQ(held_after_settling(port), before);
    EXPECT_EQ(port->next_ring_bytes(), ring_bytes) << "rings are given back to the limit";
}

TEST(PortAbandoned, NothingIsKeptOfPeersThatWereKilled) {
    const LogCapture log;
    TestPort port;
    const MailboxAddress own = port->address();
    std::vector<unsigned char> bytes(100000);
    const Registration memory(bytes.data(), bytes.size());
    const auto be_killed = [&] {
        Child child([&](const Channel &) {
            TestPort peer;
            std::vector<unsigned char> local(bytes.size());
            Outcome get;
            peer.connection(own).get(local.data(), local.size(), memory.at(), nullptr,
                                     get.completion());
            progress_until({&peer}, [&] { return get.done(); });
            raise(SIGKILL);
            return 0;
        });
        const ProcessWatch watch(child.pid());
        ASSERT_TRUE(progress_until({&port}, [&] { return !watch.alive(); }));
        ASSERT_EQ(child.reap(), 128 + SIGKILL);
    };
    const Held before = held_after_settling(port);
    for (int i = 0; i < 5; ++i) {
        be_killed();
    }
    EXPECT_TRUE(progress_until({&port}, [&] { return port.failed_connections.size() == 5; }));
    EXPECT_EQ(held_after_settling(port), before);
}

/** Records in use in the mailbox of a port of this process. */
size_t records_in_use(TestPort &port) {
    const char *why = "";
    const auto segment = Segment::attach(getpid(), port->address().segment_fd, 0, &why);
    const SenderRecord *records = MailboxGeometry::sender_records(segment->data());
    return static_cast<size_t>(
        std::count_if(records, records + kMaxSenders,
                      [](const SenderRecord &record) { return record.owner != 0; }));
}

TEST(PortAbandoned, NothingIsKeptOfPeersThatFoundNoRoomForAGoodbye) {
    TestPort port;
    std::vector<unsigned char> bytes(100000);
    const Registration memory(bytes.data(), bytes.size());
    visit(port, memory);
    const Held before = held_after_settling(port);
    size_t sent = 0;
    port.messages.clear();
    for (size_t round = 1; round <= 20; ++round) {
        {
            TestPort peer;
            Connection &connection = peer.connection(port);
            Outcome put;  // so that the port has a connection, too
            unsigned char byte = 0;
            ASSERT_EQ(connection.put(&byte, 1, memory.at(), nullptr, put.completion()),
                      Status::in_progress);
            ASSERT_TRUE(progress_until({&port, &peer}, [&] { return put.done(); }));
            while (connection.am_short(1, sent, nullptr, 0) == Status::ok) {
                ++sent;
            }
        }
        settle({&port});
        EXPECT_EQ(port.messages.size(), sent) << "what they said before counts";
    }
    EXPECT_TRUE(progress_until({&port}, [&] { return records_in_use(port) == 0; }));
    EXPECT_TRUE(progress_until({&port}, [&] { return port->arm(); }));
    EXPECT_EQ(Held(), before) << "nor while the process sleeps";
    EXPECT_EQ(held_after_settling(port), before);
    EXPECT_TRUE(port.failed_connections.empty()) << "they have ended as they should";
}

TEST(PortAbandoned, LinksThatNobodyUsedGoWithTheirPeersToo) {
    TestPort port;
    const char *why = "";
    const Held before;
    for (int i = 0; i < 100; ++i) {
        TestPort peer;
        // As for a peer that is found to be reachable and then reached in another way.
        ASSERT_NE(port->connect(peer->address(), &why), nullptr) << why;
        port->progress();
        ASSERT_LE(mappings_named("gpushm-mailbox"), before.mailboxes + 20);
    }
}

TEST(PortAbandoned, AUserKeepsTheLinkOfAPeerThatHasGoneAndLittleElse) {
    TestPort port;
    auto peer = std::make_unique<TestPort>();
    Connection &connection = port.connection(*peer);
    peer->connection(port);
    peer.reset();
    settle({&port});
    port->progress();
    EXPECT_EQ(connection.peer().pid, getpid());
    EXPECT_FALSE(connection.peer_alive()) << "nobody watches it any more";
    const size_t mailboxes = mappings_named("gpushm-mailbox");
    connection.remove_user();
    settle({&port});
    port->progress();
    EXPECT_EQ(mappings_named("gpushm-mailbox"), mailboxes - 1);
}

TEST(PortAbandoned, APutToAPortThatIsGoneFailsThoughItsProcessLives) {
    TestPort port;
    std::vector<unsigned char> bytes(100000);
    const Registration memory(bytes.data(), bytes.size());
    auto peer = std::make_unique<TestPort>();
    Connection &connection =
        port.connection(*peer);  // the peer never makes a connection of its own
    peer.reset();
    Outcome put;
    ASSERT_EQ(connection.put(bytes.data(), bytes.size(), memory.at(), nullptr, put.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&port}, [&] { return put.done(); }));
    EXPECT_EQ(put.status, Status::peer_failed);
    EXPECT_EQ(port.failed_connections.size(), 1u);
}

TEST(PortAbandoned, AForkedChildEndsItsCopyAndTouchesNothing) {
    TestPort port(kCmaPort);
    TestPort peer(kCmaPort);
    Connection &connection = port.connection(peer);
    std::vector<unsigned char> local(4 << 20);
    std::vector<unsigned char> bytes(4 << 20);
    fill_pattern(bytes.data(), bytes.size(), 1);
    const Registration memory(bytes.data(), bytes.size());
    RemoteMemory remote = memory.at();
    remote.buffer.owner = process_cookie().low;
    make_ring_ready(port, peer);
    Outcome get;
    ASSERT_EQ(connection.get(local.data(), local.size(), remote, nullptr, get.completion()),
              Status::in_progress);
    Outcome put;
    unsigned char byte = 1;
    unsigned char target = 0;
    const Registration one(&target, 1);
    ASSERT_EQ(connection.put(&byte, 1, one.at(), nullptr, put.completion()), Status::in_progress);
    Child child([&](const Channel &) {
        port.destroy();
        peer.destroy();
        return 0;
    });
    EXPECT_EQ(child.reap(), 0);
    ASSERT_TRUE(progress_until({&port, &peer}, [&] { return get.done() && put.done(); }));
    EXPECT_EQ(get.status, Status::ok);
    EXPECT_EQ(put.status, Status::ok);
    EXPECT_EQ(pattern_mismatch(local.data(), local.size(), 1), local.size());
}

TEST(PortAbandoned, WhatAPeerSaidBeforeItDiedIsHeardBeforeItsDeath) {
    TestPort port;
    const MailboxAddress own = port->address();
    const auto live = [&](const Channel &channel) {
        const PortConfig config = {0, 4096, 4096, 64};
        TestPort peer(config);
        channel.send(peer->address());
        char go = 0;
        channel.receive(&go);
        Connection &connection = peer.connection(own);
        for (uint64_t i = 0; i < 50; ++i) {
            connection.am_short(1, i, nullptr, 0);
        }
        raise(SIGKILL);
        return 0;
    };
    Child child(live);
    MailboxAddress address;
    ASSERT_TRUE(child.channel().receive(&address));
    Connection &connection = port.connection(address);
    child.channel().send('g');
    child.await_death();
    bool failed_early = false;
    port.on_message = [&](uint8_t, const unsigned char *, size_t) {
        failed_early |= connection.failed();
        port.messages.push_back({});
        connection.check_peer_soon();
    };
    connection.check_peer_soon();
    ASSERT_TRUE(progress_until({&port}, [&] { return connection.failed(); }));
    EXPECT_EQ(port.messages.size(), 50u);
    EXPECT_FALSE(failed_early);
}

}  // namespace
}  // namespace gpushm
