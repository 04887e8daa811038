// SPDX-License-Identifier: BSD-3-Clause
// Active messages from host memory: every size by every way, order, full mailboxes, many senders.
#include "test/gtest/core/transport/port_support.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

/** Without and with a ready ring from the sender to the receiver. */
class PortMessages : public testing::TestWithParam<bool> {
protected:
    void SetUp() override {
        if (GetParam()) {
            make_ring_ready(sender_, receiver_);
        }
    }

    /** The message that is sent by am_pack. */
    Status pack(PatternMessage message, uint8_t id) {
        size_t packed = ~size_t{0};
        const Status status = send_when_possible(sender_, receiver_, [&] {
            return connection_.am_pack(id, PatternMessage::pack, &message, &packed);
        });
        EXPECT_EQ(packed, message.length);
        return status;
    }

    /** `length` bytes as a header and up to three pieces, one of them perhaps empty. */
    Status pieces(const unsigned char *bytes, size_t length, uint8_t id, Random &random) {
        size_t cuts[] = {random.below(std::min<size_t>(length, 1024) + 1), random.below(length + 1),
                         random.below(length + 1)};
        std::sort(std::begin(cuts), std::end(cuts));
        const Piece piece[] = {{bytes + cuts[0], cuts[1] - cuts[0]},
                               {bytes + cuts[1], cuts[2] - cuts[1]},
                               {bytes + cuts[2], length - cuts[2]}};
        return send_when_possible(sender_, receiver_, [&] {
            return connection_.am_pieces(id, bytes, cuts[0], piece, 3, nullptr, {});
        });
    }

    void expect_next(uint8_t id, size_t length, uint64_t seed) {
        ASSERT_TRUE(
            progress_until({&receiver_, &sender_}, [&] { return !receiver_.messages.empty(); }))
            << "message " << seed << " of " << length << " bytes did not come";
        ASSERT_EQ(check_message(receiver_.messages.front(), id, length, seed), "");
        receiver_.messages.pop_front();
    }

    TestPort receiver_;
    TestPort sender_;
    Connection &connection_ = sender_.connection(receiver_);
};

TEST_P(PortMessages, ShortOfEverySizeArrivesExactly) {
    constexpr size_t kMax = Cell::kInlineBytes - 8;
    for (size_t length = 0; length <= kMax; ++length) {
        unsigned char payload[kMax];
        fill_pattern(payload, length, length + 1);
        const uint64_t header = 0x0123456789abcdefull * (length + 1);
        ASSERT_EQ(
            send_when_possible(sender_, receiver_,
                               [&] { return connection_.am_short(7, header, payload, length); }),
            Status::ok);
        ASSERT_TRUE(progress_until({&receiver_}, [&] { return !receiver_.messages.empty(); }));
        Message message = receiver_.messages.front();
        receiver_.messages.pop_front();
        ASSERT_EQ(message.bytes.size(), length + 8);
        EXPECT_EQ(memcmp(message.bytes.data(), &header, 8), 0);
        message.bytes.erase(message.bytes.begin(), message.bytes.begin() + 8);
        EXPECT_EQ(check_message(message, 7, length, length + 1), "");
    }
}

TEST_P(PortMessages, ShortPiecesOfEverySizeArriveExactly) {
    Random random(3);
    unsigned char bytes[Cell::kInlineBytes];
    for (size_t length = 0; length <= sizeof(bytes); ++length) {
        fill_pattern(bytes, length, length + 2);
        const size_t cut = random.below(length + 1);
        const Piece pieces[] = {{bytes, cut}, {nullptr, 0}, {bytes + cut, length - cut}};
        ASSERT_EQ(send_when_possible(sender_, receiver_,
                                     [&] { return connection_.am_short_pieces(8, pieces, 3); }),
                  Status::ok);
        expect_next(8, length, length + 2);
    }
}

TEST_P(PortMessages, TooLongOnesAreInvalidAndNothingIsSent) {
    const std::vector<unsigned char> bytes(kSlotBytes + 1);
    EXPECT_EQ(connection_.am_short(1, 0, bytes.data(), Cell::kInlineBytes - 7), Status::invalid);
    const Piece halves[] = {{bytes.data(), 56}, {bytes.data(), Cell::kInlineBytes - 55}};
    EXPECT_EQ(connection_.am_short_pieces(1, halves, 2), Status::invalid);
    const Piece pieces[] = {{bytes.data(), kSlotBytes - 7}};
    EXPECT_EQ(connection_.am_pieces(1, bytes.data(), 8, pieces, 1, nullptr, {}), Status::invalid);
    settle({&receiver_, &sender_});
    EXPECT_TRUE(receiver_.messages.empty());
}

TEST_P(PortMessages, PackedOfEverySizeArrivesExactly) {
    for (size_t length = 0; length <= kSlotBytes; length += kSanitized && length > 130 ? 13 : 1) {
        ASSERT_EQ(pack({length, length + 3}, 5), Status::ok);
        expect_next(5, length, length + 3);
    }
    ASSERT_EQ(pack({kSlotBytes, 1}, 5), Status::ok);
    expect_next(5, kSlotBytes, 1);
    // The ring is not full of messages that are over.
    const std::vector<unsigned char> source(2 * kSmallPort.ring_bytes);
    std::vector<unsigned char> target(source.size());
    const Registration registration(target.data(), target.size());
    Outcome put;
    ASSERT_EQ(
        connection_.put(source.data(), source.size(), registration.at(), nullptr, put.completion()),
        Status::in_progress);
    EXPECT_TRUE(progress_until({&sender_, &receiver_}, [&] { return put.done(); }));
}

TEST_P(PortMessages, PiecesOfEverySizeArriveExactly) {
    Random random(1);
    std::vector<unsigned char> bytes(kSlotBytes);
    for (size_t length = 0; length <= kSlotBytes; length += kSanitized && length > 130 ? 13 : 1) {
        fill_pattern(bytes.data(), length, length);
        ASSERT_EQ(pieces(bytes.data(), length, 31, random), Status::ok);
        expect_next(31, length, length);
    }
    fill_pattern(bytes.data(), kSlotBytes, 1);
    ASSERT_EQ(pieces(bytes.data(), kSlotBytes, 31, random), Status::ok);
    expect_next(31, kSlotBytes, 1);
}

TEST_P(PortMessages, NoneOvertakesAnother) {
    Random random(2);
    unsigned char bytes[kSlotBytes];
    uint64_t received = 0;
    receiver_.on_message = [&](uint8_t id, const unsigned char *data, size_t length) {
        uint64_t sequence;
        ASSERT_GE(length, 8u);
        memcpy(&sequence, data, 8);
        ASSERT_EQ(sequence, received) << "message of id " << unsigned{id};
        ASSERT_EQ(pattern_mismatch(data + 8, length - 8, sequence), length - 8);
        ++received;
    };
    struct Sequenced {
        uint64_t sequence;
        size_t length;
        static size_t pack(void *destination, void *argument) {
            const auto *self = static_cast<const Sequenced *>(argument);
            memcpy(destination, &self->sequence, 8);
            fill_pattern(static_cast<unsigned char *>(destination) + 8, self->length,
                         self->sequence);
            return self->length + 8;
        }
    };
    for (uint64_t sequence = 0; sequence < 20000; ++sequence) {
        const size_t way = random.below(4);
        Sequenced message = {sequence, random.below(random.below(8) == 0 ? kSlotBytes - 8 : 96)};
        size_t packed;
        fill_pattern(bytes, message.length, sequence);
        const Piece piece = {bytes, message.length};
        const size_t short_length = std::min(message.length, size_t{96});
        const Piece short_pieces[] = {{&sequence, 8}, {bytes, short_length}};
        const Status status = send_when_possible(sender_, receiver_, [&] {
            return way == 0   ? connection_.am_short(1, sequence, bytes, short_length)
                   : way == 3 ? connection_.am_short_pieces(4, short_pieces, 2)
                   : way == 1 ? connection_.am_pack(2, Sequenced::pack, &message, &packed)
                              : connection_.am_pieces(3, &sequence, 8, &piece, 1, nullptr, {});
        });
        ASSERT_EQ(status, Status::ok) << "way " << way;
        if (random.below(40) == 0) {
            receiver_->progress();
        }
    }
    ASSERT_TRUE(progress_until({&receiver_, &sender_}, [&] { return received == 20000; }));
}

TEST_P(PortMessages, FullMailboxSaysSoAndRecovers) {
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(round);
        uint64_t sent = 0;
        unsigned char bytes[200];
        Status status;
        do {
            fill_pattern(bytes, sizeof(bytes), sent);
            const Piece piece = {bytes, sizeof(bytes)};
            PatternMessage message = {sizeof(bytes), sent};
            size_t packed;
            status = sent % 2 == 0
                         ? connection_.am_pieces(1, nullptr, 0, &piece, 1, nullptr, {})
                         : connection_.am_pack(1, PatternMessage::pack, &message, &packed);
            sent += status == Status::ok;
        } while (status == Status::ok && sent < 1000);
        ASSERT_EQ(status, Status::no_resource);
        // Every cell but, with a ring, one message that waits for a cell in it.
        EXPECT_GE(sent, kSmallPort.cell_count);
        EXPECT_LE(sent, kSmallPort.cell_count + 1);
        EXPECT_EQ(connection_.am_short(1, 0, nullptr, 0), Status::no_resource);
        receiver_->progress();
        sender_->progress();
        for (uint64_t seed = 0; seed < sent; ++seed) {
            expect_next(1, sizeof(bytes), seed);
        }
        settle({&receiver_, &sender_});
        EXPECT_TRUE(receiver_.messages.empty());
    }
}

TEST_P(PortMessages, DoNotPassWhatWaitsForRoom) {
    std::vector<unsigned char> source(100000);
    std::vector<unsigned char> local(source.size());
    const Registration registration(source.data(), source.size());
    uint64_t sent = 0;
    while (connection_.am_short(3, sent, nullptr, 0) == Status::ok) {
        ++sent;
    }
    ASSERT_EQ(sent, kSmallPort.cell_count);
    Outcome outcome;
    ASSERT_EQ(connection_.get(local.data(), local.size(), registration.at(), nullptr,
                              outcome.completion()),
              Status::in_progress);
    receiver_->progress();
    EXPECT_EQ(connection_.am_short(3, sent, nullptr, 0), Status::no_resource)
        << "the request of the get has not been sent";
    sender_->progress();
    EXPECT_EQ(connection_.am_short(3, sent, nullptr, 0), Status::ok);
    ASSERT_TRUE(progress_until({&receiver_, &sender_}, [&] { return outcome.done(); }));
}

INSTANTIATE_TEST_SUITE_P(Ways, PortMessages, testing::Bool(),
                         [](const auto &info) { return info.param ? "Ring" : "Slots"; });

/** By what the connection says afterwards: that a message was answered. */
TEST(PortAnswers, AreExpectedOfWhoeverHasALink) {
    TestPort here, peer, other;
    Connection &to_here = peer.connection(here);
    const auto come = [&](Connection &connection, TestPort &from) {
        ASSERT_EQ(
            send_when_possible(from, here, [&] { return connection.am_short(3, 0, nullptr, 0); }),
            Status::ok);
        ASSERT_TRUE(progress_until({&here}, [&] { return !here.messages.empty(); }));
        here.messages.clear();
    };
    come(to_here, peer);  // there is no connection back yet
    Connection &to_peer = here.connection(peer);
    Connection &to_other = here.connection(other);
    ASSERT_EQ(to_other.am_short(3, 0, nullptr, 0), Status::ok);
    come(to_here, peer);
    ASSERT_EQ(to_peer.am_short(3, 0, nullptr, 0), Status::ok);
    EXPECT_TRUE(to_peer.expect_answer());
    EXPECT_FALSE(to_other.expect_answer()) << "nothing came of this one";
}

TEST(PortMessagesToItself, LoopbackWorks) {
    TestPort port;
    Connection &connection = port.connection(port);
    PatternMessage message = {3000, 9};
    size_t packed;
    ASSERT_EQ(connection.am_short(1, 42, nullptr, 0), Status::ok);
    ASSERT_EQ(connection.am_pack(2, PatternMessage::pack, &message, &packed), Status::ok);
    ASSERT_TRUE(progress_until({&port}, [&] { return port.messages.size() == 2; }));
    EXPECT_EQ(check_message(port.messages[1], 2, 3000, 9), "");
}

// ---------------------------------------------------------------- many senders

/** Sends `count` numbered messages of `mark`; 0 when it could. */
int send_many(Port &port, Connection &connection, uint64_t mark, uint64_t count) {
    Random random(mark);
    for (uint64_t i = 0; i < count; ++i) {
        unsigned char bytes[3000];
        const size_t length = random.below(4) == 0 ? random.below(sizeof(bytes)) : random.below(96);
        fill_pattern(bytes, length, mark * count + i);
        const uint64_t header[] = {mark, i};
        const Piece piece = {bytes, length};
        const Deadline deadline;
        while (connection.am_pieces(1, header, sizeof(header), &piece, 1, nullptr, {}) ==
               Status::no_resource) {
            port.progress();
            std::this_thread::yield();
            if (deadline.passed()) {
                return 1;
            }
        }
    }
    return 0;
}

/** Checks the messages of send_many and that those of one sender come in order. */
class ManySenders {
public:
    ManySenders(TestPort &port, uint64_t count) : count_(count) {
        port.on_message = [this](uint8_t, const unsigned char *data, size_t length) {
            uint64_t header[2];
            ASSERT_GE(length, sizeof(header));
            memcpy(header, data, sizeof(header));
            ASSERT_LT(header[0], 16u);
            ASSERT_EQ(header[1], next_[header[0]]++) << "sender " << header[0];
            const size_t payload = length - sizeof(header);
            ASSERT_EQ(
                pattern_mismatch(data + sizeof(header), payload, header[0] * count_ + header[1]),
                payload);
            ++received;
        };
    }
    uint64_t received = 0;

private:
    uint64_t count_;
    uint64_t next_[16] = {};
};

TEST(PortTraffic, ManyProcessesSendToOne) {
    constexpr uint64_t kCount = 4000;
    TestPort receiver;
    ManySenders check(receiver, kCount);
    const MailboxAddress address = receiver->address();
    std::deque<Child> children;
    for (uint64_t mark = 0; mark < 4; ++mark) {
        children.emplace_back([&, mark](const Channel &) {
            TestPort sender;
            return send_many(*sender, sender.connection(address), mark, kCount);
        });
    }
    EXPECT_TRUE(progress_until({&receiver}, [&] { return check.received == 4 * kCount; }));
    for (Child &child : children) {
        EXPECT_EQ(child.reap(), 0);
    }
}

TEST(PortTraffic, TwoThreadsBothWays) {
    constexpr uint64_t kCount = 10000;
    const OneMappingPerFile one_mapping;
    TestPort ports[2];
    ManySenders checks[] = {{ports[0], kCount}, {ports[1], kCount}};
    Connection *connections[] = {&ports[0].connection(ports[1]), &ports[1].connection(ports[0])};
    std::atomic<unsigned> finished{0};
    const auto run = [&](unsigned self) {
        EXPECT_EQ(send_many(*ports[self], *connections[self], self, kCount), 0);
        const auto all = [&] { return checks[self].received == kCount; };
        EXPECT_TRUE(progress_until({&ports[self]}, all));
        ++finished;
        progress_until({&ports[self]}, [&] { return finished == 2; });
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    ports[0].destroy();
    ports[1].destroy();
}

}  // namespace
}  // namespace gpushm
