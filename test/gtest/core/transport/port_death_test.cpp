// SPDX-License-Identifier: BSD-3-Clause
// A peer that is killed: everything ends in bounded time, and nothing is left of it.
#include "test/gtest/core/transport/port_support.hpp"

#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 4 << 20;

/** Ours in /dev/shm: other tests, which may run at the same time, have UCX make files there. */
size_t shared_memory_names() {
    size_t count = 0;
    if (DIR *directory = opendir("/dev/shm")) {
        while (const dirent *entry = readdir(directory)) {
            count += strstr(entry->d_name, "gpushm") != nullptr;
        }
        closedir(directory);
    }
    return count;
}

/** What the peer tells the test. */
struct PeerAddress {
    MailboxAddress mailbox;
    RemoteMemory memory;  // kBytes of it
};

/** A peer that progresses when it is told to ('p': until nothing happens, '1': once), and waits for
 * its death otherwise. */
int obey(const Channel &channel) {
    TestPort port;
    std::vector<unsigned char> memory(kBytes, 1);
    const Registration registration(memory.data(), kBytes);
    channel.send(PeerAddress{port->address(), registration.at()});
    char order;
    while (channel.receive(&order)) {
        if (order == '1') {
            port->progress();
        } else {
            progress_until({&port}, [&] { return port->progress() == 0; });
        }
        channel.send(order);
    }
    return 0;
}

class PortDeath : public testing::Test {
protected:
    PortDeath() : peer_(obey), port_(std::make_unique<TestPort>()), local_(kBytes, 2) {
        PeerAddress address;
        EXPECT_TRUE(peer_.channel().receive(&address));
        connection_ = &port_->connection(address.mailbox);
        remote_ = address.memory;
    }
    ~PortDeath() override {
        port_.reset();
        EXPECT_EQ(open_descriptors(), descriptors_);
        EXPECT_EQ(mappings_named("memfd:gpushm"), 0u);
        EXPECT_EQ(shared_memory_names(), names_);
    }

    void order(char what) {
        peer_.channel().send(what);
        char done;
        ASSERT_TRUE(peer_.channel().receive(&done));
    }
    Status put(Outcome &outcome) {
        return connection_->put(local_.data(), kBytes, remote_, nullptr, outcome.completion());
    }
    Status get(Outcome &outcome) {
        return connection_->get(local_.data(), kBytes, remote_, nullptr, outcome.completion());
    }
    /** Everything ends as it must after the death. */
    void expect_failure(std::initializer_list<Outcome *> outcomes) {
        const auto begin = std::chrono::steady_clock::now();
        ASSERT_TRUE(
            progress_until({port_.get()}, [&] { return !port_->failed_connections.empty(); }));
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
        settle({port_.get()});
        for (Outcome *outcome : outcomes) {
            expect_peer_failed(*outcome);
        }
        EXPECT_EQ(port_->failed_connections, std::vector<Connection *>{connection_});
        EXPECT_TRUE((*port_)->idle());
        unsigned char byte = 0;
        const Piece piece = {&byte, 1};
        PatternMessage message = {10, 1};
        size_t packed;
        Outcome none;
        EXPECT_EQ(connection_->am_short(1, 0, nullptr, 0), Status::peer_failed);
        EXPECT_EQ(connection_->am_pack(1, PatternMessage::pack, &message, &packed),
                  Status::peer_failed);
        EXPECT_EQ(connection_->am_pieces(1, nullptr, 0, &piece, 1, nullptr, none.completion()),
                  Status::peer_failed);
        EXPECT_EQ(put(none), Status::peer_failed);
        EXPECT_EQ(get(none), Status::peer_failed);
        EXPECT_EQ(connection_->flush(nullptr, none.completion()), Status::peer_failed);
        EXPECT_EQ(none.calls, 0u);
    }

    // Counted before anything is made.
    size_t names_ = shared_memory_names();
    size_t descriptors_ = open_descriptors() + 1;  // the channel
    Child peer_;
    std::unique_ptr<TestPort> port_;
    Connection *connection_ = nullptr;
    RemoteMemory remote_;
    std::vector<unsigned char> local_;
};

TEST_F(PortDeath, AtRestIsSeenWhenSomebodyAsks) {
    EXPECT_TRUE(connection_->peer_alive());
    peer_.kill_hard();
    EXPECT_FALSE(connection_->peer_alive());
    connection_->check_peer_soon();
    expect_failure({});
}

TEST_F(PortDeath, LivingPeerDoesNotFailWhenSomebodyAsks) {
    for (int i = 0; i < 100; ++i) {
        connection_->check_peer_soon();
        (*port_)->progress();
    }
    EXPECT_TRUE(port_->failed_connections.empty());
    EXPECT_TRUE((*port_)->idle());
}

TEST_F(PortDeath, WithMessagesInFlight) {
    // The mailbox is full, and a message waits for a cell.
    Outcome first;
    ASSERT_EQ(put(first), Status::in_progress);
    (*port_)->progress();
    order('p');
    (*port_)->progress();
    PatternMessage message = {100, 1};
    size_t packed;
    while (connection_->am_pack(1, PatternMessage::pack, &message, &packed) == Status::ok) {
    }
    Outcome flush;
    ASSERT_EQ(connection_->flush(nullptr, flush.completion()), Status::in_progress);
    peer_.kill_hard();
    expect_failure({&first, &flush});
}

/** As a process polls that yields its core to others each time. */
bool seldom_polls_until(TestPort &port, const std::function<bool()> &condition) {
    for (int poll = 0; poll < 100 && !condition(); ++poll) {
        port->progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
}

TEST_F(PortDeath, IsSeenByAProcessThatSeldomPolls) {
    Outcome waits;
    ASSERT_EQ(put(waits), Status::in_progress);
    EXPECT_FALSE(seldom_polls_until(*port_, [&] { return waits.done(); })) << "it lives";
    peer_.kill_hard();
    EXPECT_TRUE(seldom_polls_until(*port_, [&] { return waits.done(); }));
    expect_failure({&waits});
}

TEST_F(PortDeath, SenderWithoutRoomIsToldWhenItAsks) {
    while (connection_->am_short(1, 0, nullptr, 0) == Status::ok) {
    }
    peer_.kill_hard();
    ASSERT_TRUE(progress_until({port_.get()}, [&] {
        connection_->check_peer();
        return connection_->failed();
    }));
    expect_failure({});
}

TEST_F(PortDeath, AtEveryMomentOfTransfers) {
    const LogCapture log;
    for (int moment = 0; moment < 12; ++moment) {
        SCOPED_TRACE(moment);
        Child peer(obey);
        PeerAddress address;
        ASSERT_TRUE(peer.channel().receive(&address));
        Connection &connection = port_->connection(address.mailbox);
        Outcome outcomes[3];
        ASSERT_EQ(connection.get(local_.data(), kBytes / 2, address.memory, nullptr,
                                 outcomes[1].completion()),
                  Status::in_progress);
        RemoteMemory behind = address.memory;
        behind.address += kBytes / 2;
        ASSERT_EQ(
            connection.put(local_.data(), kBytes / 2, behind, nullptr, outcomes[0].completion()),
            Status::in_progress);
        ASSERT_EQ(connection.flush(nullptr, outcomes[2].completion()), Status::in_progress);
        for (int i = 0; i < moment; ++i) {
            (*port_)->progress();
            peer.channel().send('1');
            char done;
            ASSERT_TRUE(peer.channel().receive(&done));
        }
        ASSERT_EQ(outcomes[0].calls + outcomes[1].calls + outcomes[2].calls, 0u);
        peer.kill_hard();
        if (moment % 2 == 0) {
            peer.reap();  // a zombie or nobody at all
        }
        ASSERT_TRUE(
            progress_until({port_.get()}, [&] { return !port_->failed_connections.empty(); }));
        settle({port_.get()});
        EXPECT_EQ(port_->failed_connections, std::vector<Connection *>{&connection});
        port_->failed_connections.clear();
        for (const Outcome &outcome : outcomes) {
            expect_peer_failed(outcome);
        }
    }
}

/** Small puts and gets that are collected, on their way and answered in part. */
TEST_F(PortDeath, AtEveryMomentOfBlocks) {
    constexpr size_t kBlocks = 1500;
    const LogCapture log;
    for (int moment = 0; moment < 6; ++moment) {
        SCOPED_TRACE(moment);
        Child peer(obey);
        PeerAddress address;
        ASSERT_TRUE(peer.channel().receive(&address));
        Connection &connection = port_->connection(address.mailbox);
        RemoteMemory remote = address.memory;
        remote.buffer.kind = MemoryKind::device;
        remote.of_program = true;
        std::deque<Outcome> outcomes;
        for (size_t i = 0; i < kBlocks; ++i) {
            for (const bool is_put : {true, false}) {
                remote.address = address.memory.address + i * 100 + (is_put ? 0 : kBytes / 2);
                outcomes.emplace_back();
                const Completion completion = outcomes.back().completion();
                const Status status =
                    is_put ? connection.put(&local_[i], 1, remote, nullptr, completion)
                           : connection.get(&local_[i], 1, remote, nullptr, completion);
                if (status == Status::no_resource) {
                    outcomes.pop_back();
                }
            }
        }
        Outcome flush;
        ASSERT_EQ(connection.flush(nullptr, flush.completion()), Status::in_progress);
        for (int i = 0; i < moment; ++i) {
            (*port_)->progress();
            peer.channel().send('1');
            char done;
            ASSERT_TRUE(peer.channel().receive(&done));
        }
        peer.kill_hard();
        ASSERT_TRUE(
            progress_until({port_.get()}, [&] { return !port_->failed_connections.empty(); }));
        settle({port_.get()});
        port_->failed_connections.clear();
        for (const Outcome &outcome : outcomes) {
            ASSERT_EQ(outcome.calls, 1u);
        }
        EXPECT_EQ(flush.calls, 1u);
        EXPECT_GT(outcomes.size(), 10u);
        EXPECT_TRUE((*port_)->idle());
    }
}

TEST_F(PortDeath, WhileItOwesAGetReply) {
    Outcome outcome;
    ASSERT_EQ(get(outcome), Status::in_progress);
    peer_.kill_hard();  // it has not even seen the request
    expect_failure({&outcome});
}

TEST_F(PortDeath, IsSeenWhereTheOwnMailboxIsBroken) {
    const char *why = "";
    auto segment = Segment::attach(getpid(), (*port_)->address().segment_fd, 0, &why);
    reinterpret_cast<MailboxHeader *>(segment->data())->tail.store(~uint64_t{0});
    segment.reset();
    Outcome outcome;
    ASSERT_EQ(get(outcome), Status::in_progress);
    peer_.kill_hard();
    ASSERT_TRUE(progress_until({port_.get()}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::peer_failed);
}

TEST_F(PortDeath, OfAPeerThatReadsFromUs) {
    const Registration registration(local_.data(), kBytes);
    const MailboxAddress own = (*port_)->address();
    const RemoteMemory remote = registration.at();
    Child reader([&](const Channel &channel) {
        TestPort port;
        std::vector<unsigned char> memory(kBytes);
        port.connection(own).get(memory.data(), kBytes, remote, nullptr, {});
        port->progress();
        channel.send('r');
        char never;
        channel.receive(&never);
        return 0;
    });
    char ready;
    ASSERT_TRUE(reader.channel().receive(&ready));
    for (int i = 0; i < 10; ++i) {
        (*port_)->progress();
    }
    EXPECT_FALSE((*port_)->idle());
    reader.kill_hard();
    EXPECT_TRUE(progress_until({port_.get()}, [&] { return (*port_)->idle(); }));
    EXPECT_EQ(port_->failed_connections.size(), 1u);
    EXPECT_TRUE(connection_->peer_alive());
    EXPECT_FALSE(connection_->failed()) << "the other peer lives";
}

// ---------------------------------------------------------------- a reserved cell

/** Reserves a cell of the test's mailbox and is killed before it publishes. */
void leave_reserved_cell(const MailboxAddress &own) {
    Child peer([&](const Channel &channel) {
        const auto mailbox = MailboxReceiver::create(16, kSlotBytes);
        const char *why = "";
        auto sender = MailboxSender::attach(own, mailbox->address(), &why);
        ReservedCell cell;
        channel.send(sender && sender->reserve(&cell));
        char never;
        channel.receive(&never);
        return 0;
    });
    bool reserved = false;
    ASSERT_TRUE(peer.channel().receive(&reserved));
    ASSERT_TRUE(reserved);
    peer.kill_hard();
}

TEST_F(PortDeath, ReservedCellDoesNotHoldUpTheMessagesBehindIt) {
    const LogCapture log;
    TestPort other;
    Connection &connection = other.connection(*port_);
    leave_reserved_cell((*port_)->address());
    for (uint64_t i = 0; i < 10; ++i) {
        ASSERT_EQ(connection.am_short(1, i, nullptr, 0), Status::ok);
    }
    EXPECT_TRUE(progress_until({port_.get()}, [&] { return port_->messages.size() == 10; }));
}

TEST_F(PortDeath, ReservedCellDoesNotHoldUpAProcessThatSeldomPolls) {
    const LogCapture log;
    TestPort other;
    Connection &connection = other.connection(*port_);
    EXPECT_FALSE(seldom_polls_until(*port_, [&] { return !port_->messages.empty(); }));
    leave_reserved_cell((*port_)->address());
    ASSERT_EQ(connection.am_short(1, 0, nullptr, 0), Status::ok);
    EXPECT_TRUE(seldom_polls_until(*port_, [&] { return port_->messages.size() == 1; }));
}

TEST_F(PortDeath, ReservedCellDoesNotHoldUpASleeper) {
    const LogCapture log;
    TestPort other;
    Connection &connection = other.connection(*port_);
    settle({port_.get()});
    ASSERT_TRUE((*port_)->arm());
    leave_reserved_cell((*port_)->address());
    ASSERT_EQ(connection.am_short(1, 0, nullptr, 0), Status::ok);
    // As a user of the descriptor does: progress, arm, sleep.
    const Deadline deadline;
    pollfd event = {(*port_)->event_fd(), POLLIN, 0};
    while (port_->messages.empty()) {
        ASSERT_FALSE(deadline.passed());
        if ((*port_)->progress() == 0 && (*port_)->arm()) {
            ASSERT_EQ(poll(&event, 1, 10000), 1) << "a message waits, and nobody woke the owner";
        }
    }
}

TEST_F(PortDeath, RecordsOfTheDeadServeOthers) {
    const LogCapture log;
    const MailboxAddress own = (*port_)->address();
    for (uint32_t i = 0; i < 8; ++i) {
        Child peer([&](const Channel &) {
            TestPort port({0, 4096, 4096, 16});
            port.connection(own).am_short(1, 0, nullptr, 0);
            raise(SIGKILL);
            return 0;
        });
        peer.reap();
    }
    const char *why = "";
    const auto segment = Segment::attach(getpid(), own.segment_fd, 0, &why);
    const auto used = [&] {
        const SenderRecord *records = MailboxGeometry::sender_records(segment->data());
        return std::count_if(records, records + kMaxSenders,
                             [](const SenderRecord &record) { return record.owner != 0; });
    };
    EXPECT_EQ(used(), 8);
    EXPECT_TRUE(progress_until({port_.get()}, [&] { return used() == 0; }));
    EXPECT_EQ(port_->messages.size(), 8u);
}

}  // namespace
}  // namespace gpushm
