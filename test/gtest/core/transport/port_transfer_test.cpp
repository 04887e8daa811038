// SPDX-License-Identifier: BSD-3-Clause
// Transfers between host buffers: sizes, places, canaries, many at once, by every way that a peer
// may leave open.
#include "test/gtest/core/transport/port_support.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kMargin = 64;
constexpr unsigned char kCanary = 0xa5;

/** Memory with canaries around `length` bytes that begin `shift` behind an aligned address. */
class Area {
public:
    explicit Area(size_t length, size_t shift = 0)
        : bytes_(kMargin + shift + length + kMargin, kCanary),
          begin_(kMargin + shift),
          length_(length) {}
    unsigned char *data() { return bytes_.data() + begin_; }
    size_t length() const { return length_; }
    void fill(uint64_t seed) { fill_pattern(data(), length_, seed); }
    std::string check(uint64_t seed) {
        const size_t wrong = pattern_mismatch(data(), length_, seed);
        if (wrong != length_) {
            return "byte " + std::to_string(wrong) + " of " + std::to_string(length_);
        }
        return canaries() ? "" : "bytes around it changed";
    }
    /** Nothing around it changed. */
    bool canaries() const {
        const auto is_canary = [](unsigned char byte) { return byte == kCanary; };
        return std::all_of(bytes_.begin(), bytes_.begin() + begin_, is_canary) &&
               std::all_of(bytes_.begin() + begin_ + length_, bytes_.end(), is_canary);
    }

private:
    std::vector<unsigned char> bytes_;
    size_t begin_;
    size_t length_;
};

enum class Direction { put, get };

/** A transfer between two ports of this process, one buffer at each. */
class Transfer {
public:
    Transfer(Direction direction, size_t length, uint64_t seed, size_t source_shift = 0,
             size_t target_shift = 0)
        : direction_(direction),
          seed_(seed),
          source_(length, source_shift),
          target_(length, target_shift),
          registration_(direction == Direction::put ? target_.data() : source_.data(), length) {
        source_.fill(seed);
    }

    /** Over the connection of the port that starts it. */
    Status start(Connection &connection, const void *owner = nullptr) {
        return direction_ == Direction::put
                   ? connection.put(source_.data(), source_.length(), registration_.at(), owner,
                                    outcome.completion())
                   : connection.get(target_.data(), target_.length(), registration_.at(), owner,
                                    outcome.completion());
    }
    /** "" when it ended well. */
    std::string check() {
        if (outcome.calls != 1 || outcome.status != Status::ok) {
            return "ended " + std::to_string(outcome.calls) + " times with status " +
                   std::to_string(static_cast<int>(outcome.status));
        }
        const std::string target = target_.check(seed_);
        return target.empty() && !source_.canaries() ? "bytes around the source changed" : target;
    }

    Outcome outcome;

private:
    Direction direction_;
    uint64_t seed_;
    Area source_;
    Area target_;
    Registration registration_;
};

std::string to_text(Direction direction, size_t length) {
    return (direction == Direction::put ? "put of " : "get of ") + std::to_string(length);
}

/** What leads the data: the ring, slots because one side makes none, a ring of a page. */
struct Way {
    const char *name;
    PortConfig config;
};

class PortTransfers : public testing::TestWithParam<Way> {
protected:
    void run(Direction direction, size_t length, size_t source_shift = 0, size_t target_shift = 0) {
        SCOPED_TRACE(to_text(direction, length));
        Transfer transfer(direction, length, length + 1, source_shift, target_shift);
        ASSERT_EQ(transfer.start(connection_), Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return transfer.outcome.done(); }));
        ASSERT_EQ(transfer.check(), "");
    }

    TestPort a_{GetParam().config};
    TestPort b_{GetParam().config};
    Connection &connection_ = a_.connection(b_);
};

TEST_P(PortTransfers, EveryLengthArrivesExactly) {
    std::vector<size_t> lengths;
    for (size_t length = 1; length <= 130; ++length) {
        lengths.push_back(length);
    }
    // Chunks of a page's ring, of slots, and those of the configuration.
    for (const size_t chunk : {1024ul, kSlotBytes, 4ul << 10, 16ul << 10, 32ul << 10, 64ul << 10}) {
        for (const size_t count : {1, 2, 3, 7}) {
            for (const size_t delta : {~size_t{0}, size_t{0}, size_t{1}}) {
                lengths.push_back(count * chunk + delta);
            }
        }
    }
    lengths.push_back((1 << 20) + 1);
    for (const size_t length : lengths) {
        for (const Direction direction : {Direction::put, Direction::get}) {
            run(direction, length, length % 7, length % 11);
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

TEST_P(PortTransfers, LargeOnesArriveExactly) {
    run(Direction::put, 16 << 20, 1, 3);
    run(Direction::get, (16 << 20) - 1, 5, 0);
}

TEST_P(PortTransfers, NoLengthIsDoneAtOnce) {
    Outcome outcome;
    EXPECT_EQ(connection_.put(nullptr, 0, {0, 0}, nullptr, outcome.completion()), Status::ok);
    EXPECT_EQ(connection_.get(nullptr, 0, {0, 0}, nullptr, outcome.completion()), Status::ok);
    settle({&a_, &b_});
    EXPECT_EQ(outcome.calls, 0u);
}

TEST_P(PortTransfers, ManyAtOnceInBothDirections) {
    Random random(3);
    std::deque<Transfer> transfers;
    for (uint64_t i = 0; i < 120; ++i) {
        const size_t length = 1 + random.below(random.below(4) == 0 ? 300000 : 3000);
        const Direction direction = i % 3 == 0 ? Direction::put : Direction::get;
        transfers.emplace_back(direction, length, i + 1, random.below(9), random.below(9));
        TestPort &from = i % 2 == 0 ? a_ : b_;
        TestPort &to = i % 2 == 0 ? b_ : a_;
        ASSERT_EQ(transfers.back().start(from.connection(to)), Status::in_progress);
        if (random.below(4) == 0) {
            from->progress();
        }
    }
    EXPECT_TRUE(progress_until({&a_, &b_}, [&] {
        return std::all_of(transfers.begin(), transfers.end(),
                           [](const Transfer &transfer) { return transfer.outcome.done(); });
    }));
    for (Transfer &transfer : transfers) {
        ASSERT_EQ(transfer.check(), "");
    }
    settle({&a_, &b_});
    EXPECT_TRUE(a_->idle());
    EXPECT_TRUE(b_->idle());
}

TEST_P(PortTransfers, MessagesGoOnBesideThem) {
    Transfer put(Direction::put, 1 << 20, 1);
    Transfer get(Direction::get, 1 << 20, 2);
    ASSERT_EQ(put.start(connection_), Status::in_progress);
    ASSERT_EQ(get.start(b_.connection(a_)), Status::in_progress);
    uint64_t sent = 0;
    uint64_t received = 0;
    b_.on_message = [&](uint8_t, const unsigned char *data, size_t length) {
        ASSERT_EQ(length, 2000u);
        ASSERT_EQ(pattern_mismatch(data, length, received), length);
        ++received;
    };
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] {
        PatternMessage message = {2000, sent};
        size_t packed;
        sent += connection_.am_pack(1, PatternMessage::pack, &message, &packed) == Status::ok;
        return put.outcome.done() && get.outcome.done();
    }));
    EXPECT_EQ(put.check(), "");
    EXPECT_EQ(get.check(), "");
    EXPECT_GT(sent, 10u);
    EXPECT_TRUE(progress_until({&a_, &b_}, [&] { return received == sent; }));
}

INSTANTIATE_TEST_SUITE_P(Ways, PortTransfers,
                         testing::Values(Way{"Ring", kSmallPort}, Way{"Slots", kNoRing},
                                         Way{"PageRing", {4096, 32 << 10, 16 << 10, 64}},
                                         Way{"FewCells", {64 << 10, 4096, 4096, 2}}),
                         [](const auto &info) { return info.param.name; });

TEST(PortTransferWays, PeerThatCannotMapTheRingGetsSlots) {
    TestPort a;
    TestPort b;
    Connection &connection = a.connection(b);
    b.connection(a);
    const LogCapture log;
    Transfer put(Direction::put, 200001, 1);
    ASSERT_EQ(put.start(connection), Status::in_progress);
    a->progress();  // makes the ring and offers it
    {
        const NoMappings none;
        b->progress();
    }
    ASSERT_TRUE(progress_until({&a, &b}, [&] { return put.outcome.done(); }));
    EXPECT_EQ(put.check(), "");
    EXPECT_EQ(log.count("cannot map the staging ring"), 1u);
    EXPECT_EQ(mappings_named("gpushm-ring"), 0u) << "the refused ring is kept";
    // The other direction has a ring of its own.
    Transfer get(Direction::get, 200001, 2);
    ASSERT_EQ(get.start(connection), Status::in_progress);
    ASSERT_TRUE(progress_until({&a, &b}, [&] { return get.outcome.done(); }));
    EXPECT_EQ(get.check(), "");
    EXPECT_EQ(mappings_named("gpushm-ring"), 2u);
}

TEST(PortTransferWays, NoRingIsMadeForMessages) {
    TestPort a;
    TestPort b;
    PatternMessage message = {5000, 1};
    size_t packed;
    ASSERT_EQ(a.connection(b).am_pack(1, PatternMessage::pack, &message, &packed), Status::ok);
    settle({&a, &b});
    EXPECT_EQ(b.messages.size(), 1u);
    EXPECT_EQ(mappings_named("gpushm-ring"), 0u);
}

TEST(PortTraffic, TwoThreadsTransferBothWays) {
    const OneMappingPerFile one_mapping;
    TestPort ports[2];
    Connection *connections[] = {&ports[0].connection(ports[1]), &ports[1].connection(ports[0])};
    std::atomic<unsigned> finished{0};
    const auto run = [&](unsigned self) {
        Random random(self + 1);
        for (uint64_t i = 0; i < 60; ++i) {
            Transfer put(Direction::put, 1 + random.below(200000), 2 * i + self, i % 5);
            Transfer get(Direction::get, 1 + random.below(200000), 2 * i + self + 1000);
            EXPECT_EQ(put.start(*connections[self]), Status::in_progress);
            EXPECT_EQ(get.start(*connections[self]), Status::in_progress);
            EXPECT_TRUE(progress_until({&ports[self]},
                                       [&] { return put.outcome.done() && get.outcome.done(); }));
            EXPECT_EQ(put.check(), "");
            EXPECT_EQ(get.check(), "");
        }
        ++finished;
        progress_until({&ports[self]}, [&] { return finished == 2; });
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    ports[0].destroy();
    ports[1].destroy();
}

/** A process that offers `bytes` of memory for transfers until it is told to end. */
class RemoteBuffer {
public:
    explicit RemoteBuffer(size_t bytes)
        : child_([bytes](const Channel &channel) {
              TestPort port;
              std::vector<unsigned char> memory(bytes);
              fill_pattern(memory.data(), bytes, 7);
              const Registration registration(memory.data(), bytes);
              channel.send(port->address());
              channel.send(registration.at());
              std::atomic<bool> end{false};
              std::thread listener([&] {
                  char byte;
                  channel.receive(&byte);
                  end = true;
              });
              progress_until({&port}, [&] { return end.load(); });
              listener.join();
              return pattern_mismatch(memory.data(), bytes, 8) == bytes ? 0 : 1;
          }) {
        EXPECT_TRUE(child_.channel().receive(&address));
        EXPECT_TRUE(child_.channel().receive(&memory));
    }
    /** 0 when the pattern 8 is in its memory at the end. */
    int end() {
        child_.channel().send('e');
        return child_.reap();
    }

    MailboxAddress address;
    RemoteMemory memory;

private:
    Child child_;
};

TEST(PortTraffic, TransfersBetweenProcesses) {
    constexpr size_t kBytes = 3000001;
    RemoteBuffer remote(kBytes);
    TestPort port;
    Connection &connection = port.connection(remote.address);
    std::vector<unsigned char> local(kBytes);
    Outcome get;
    ASSERT_EQ(connection.get(local.data(), kBytes, remote.memory, nullptr, get.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&port}, [&] { return get.done(); }));
    EXPECT_EQ(get.status, Status::ok);
    EXPECT_EQ(pattern_mismatch(local.data(), kBytes, 7), kBytes);
    fill_pattern(local.data(), kBytes, 8);
    Outcome put;
    ASSERT_EQ(connection.put(local.data(), kBytes, remote.memory, nullptr, put.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&port}, [&] { return put.done(); }));
    EXPECT_EQ(put.status, Status::ok);
    EXPECT_EQ(remote.end(), 0) << "the put completed before its data was there";
}

}  // namespace
}  // namespace gpushm
