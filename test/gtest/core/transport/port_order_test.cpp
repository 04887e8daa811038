// SPDX-License-Identifier: BSD-3-Clause
// Flush and fence, what completions may do, and the end of an owner's operations.
#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kParts = 3;
constexpr size_t kPart = 2 << 20;  // many rings
constexpr size_t kLong = kParts * kPart;
constexpr char kOwner[2] = {};  // two owners

class PortOrder : public testing::Test {
protected:
    PortOrder() : target_(kLong), registration_(target_.data(), kLong), source_(kLong) {
        fill_pattern(source_.data(), kLong, 1);
    }

    Status put(Outcome &outcome, size_t length, const void *owner = nullptr) {
        return connection_.put(source_.data(), length, registration_.at(), owner,
                               outcome.completion());
    }
    /** One of kParts parts, which do not overlap. */
    Status put_part(Outcome &outcome, size_t part, const void *owner = nullptr,
                    const unsigned char *from = nullptr) {
        const unsigned char *source = from != nullptr ? from : source_.data();
        return connection_.put(source + part * kPart, kPart, registration_.at(part * kPart), owner,
                               outcome.completion());
    }
    bool run_until(const Outcome &outcome) {
        return progress_until({&a_, &b_}, [&] { return outcome.done(); });
    }
    /** A few chunks of what is under way have moved, not all. */
    void run_a_little() {
        for (int i = 0; i < 3; ++i) {
            a_->progress();
            b_->progress();
        }
    }

    TestPort a_;
    TestPort b_;
    Connection &connection_ = a_.connection(b_);
    std::vector<unsigned char> target_;
    Registration registration_;
    std::vector<unsigned char> source_;
};

TEST_F(PortOrder, FlushOfNothingIsDone) {
    Outcome flush;
    EXPECT_EQ(connection_.flush(nullptr, flush.completion()), Status::ok);
    ASSERT_EQ(connection_.am_short(1, 0, nullptr, 0), Status::ok);
    EXPECT_EQ(connection_.flush(nullptr, flush.completion()), Status::ok);
    settle({&a_, &b_});
    EXPECT_EQ(flush.calls, 0u);
}

TEST_F(PortOrder, FlushWaitsForWhatWasStartedAndNothingElse) {
    Outcome puts[3];
    Outcome flushes[2];
    ASSERT_EQ(put_part(puts[0], 0), Status::in_progress);
    ASSERT_EQ(connection_.flush(nullptr, flushes[0].completion()), Status::in_progress);
    ASSERT_EQ(put_part(puts[1], 1), Status::in_progress);
    ASSERT_EQ(connection_.flush(nullptr, flushes[1].completion()), Status::in_progress);
    ASSERT_EQ(put_part(puts[2], 2), Status::in_progress);
    for (unsigned i = 0; i < 2; ++i) {
        ASSERT_TRUE(run_until(flushes[i]));
        EXPECT_TRUE(puts[i].done());
        EXPECT_FALSE(puts[i + 1].done()) << "the flush waited for a later operation";
        EXPECT_EQ(flushes[i].status, Status::ok);
    }
    ASSERT_TRUE(run_until(puts[2]));
    EXPECT_EQ(flushes[0].calls + flushes[1].calls, 2u);
}

TEST_F(PortOrder, FenceHoldsBackUntilTheDataIsThere) {
    bool data_was_there = false;
    b_.on_message = [&](uint8_t, const unsigned char *, size_t) {
        data_was_there = pattern_mismatch(target_.data(), kLong, 1) == kLong;
    };
    connection_.fence();  // of nothing: no effect
    Outcome outcome;
    ASSERT_EQ(put(outcome, kLong), Status::in_progress);
    ASSERT_EQ(connection_.am_short(9, 0, nullptr, 0), Status::ok)
        << "without a fence it may overtake";
    settle({&b_});
    connection_.fence();
    const Piece piece = {source_.data(), 10};
    PatternMessage message = {10, 1};
    size_t packed;
    unsigned char byte;
    run_a_little();
    ASSERT_FALSE(outcome.done());
    EXPECT_EQ(connection_.am_short(1, 0, nullptr, 0), Status::no_resource);
    EXPECT_EQ(connection_.am_pack(1, PatternMessage::pack, &message, &packed), Status::no_resource);
    EXPECT_EQ(connection_.am_pieces(1, nullptr, 0, &piece, 1, nullptr, {}), Status::no_resource);
    EXPECT_EQ(connection_.put(&byte, 1, registration_.at(), nullptr, {}), Status::no_resource);
    EXPECT_EQ(connection_.get(&byte, 1, registration_.at(), nullptr, {}), Status::no_resource);
    ASSERT_EQ(send_when_possible(a_, b_, [&] { return connection_.am_short(1, 0, nullptr, 0); }),
              Status::ok);
    EXPECT_TRUE(outcome.done());
    data_was_there = false;
    settle({&a_, &b_});
    EXPECT_TRUE(data_was_there);
}

/** By every way that gets between hosts take. */
TEST_F(PortOrder, APutWaitsForGetsOfTheSameMemoryOnly) {
    constexpr size_t kHalf = kLong / 2;
    for (const size_t length : {size_t{4}, kHalf}) {
        fill_pattern(target_.data(), kLong, 7);
        std::vector<unsigned char> local(length);
        Outcome get;
        ASSERT_EQ(
            connection_.get(local.data(), length, registration_.named(), nullptr, get.completion()),
            Status::in_progress);
        Outcome beside;
        EXPECT_EQ(connection_.put(source_.data(), 4, registration_.named(length), nullptr,
                                  beside.completion()),
                  Status::in_progress);
        Outcome overlapping;
        EXPECT_EQ(connection_.put(source_.data(), 4, registration_.named(length - 1), nullptr,
                                  overlapping.completion()),
                  Status::no_resource);
        ASSERT_EQ(send_when_possible(a_, b_,
                                     [&] {
                                         const Status status = connection_.put(
                                             source_.data(), 4, registration_.named(length - 1),
                                             nullptr, overlapping.completion());
                                         return status == Status::in_progress ? Status::ok : status;
                                     }),
                  Status::ok);
        EXPECT_TRUE(get.done());
        EXPECT_EQ(pattern_mismatch(local.data(), length, 7), length);
        ASSERT_TRUE(
            progress_until({&a_, &b_}, [&] { return beside.done() && overlapping.done(); }));
        EXPECT_EQ(memcmp(target_.data() + length - 1, source_.data(), 4), 0);
    }
}

TEST_F(PortOrder, CompletionsMayStartOperationsAndFlush) {
    struct Chain {
        PortOrder *test;
        Connection *connection;
        RemoteMemory remote;
        const unsigned char *source;
        unsigned left;
        Outcome flush;
        static void next(void *self, Status status) {
            auto *chain = static_cast<Chain *>(self);
            EXPECT_EQ(status, Status::ok);
            if (--chain->left != 0) {
                EXPECT_EQ(chain->connection->put(chain->source, 40000, chain->remote, nullptr,
                                                 {next, chain}),
                          Status::in_progress);
                EXPECT_EQ(chain->connection->am_short(1, 0, nullptr, 0), Status::ok);
            } else {
                EXPECT_EQ(chain->connection->flush(nullptr, chain->flush.completion()), Status::ok);
            }
        }
    };
    Chain chain = {this, &connection_, registration_.at(), source_.data(), 51, {}};
    Chain::next(&chain, Status::ok);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return chain.left == 0; }));
    settle({&a_, &b_});
    EXPECT_EQ(b_.messages.size(), 50u);
    EXPECT_EQ(pattern_mismatch(target_.data(), 40000, 1), 40000u);
}

// ---------------------------------------------------------------- the same memory

/** Puts to a GPU's memory, whatever that is here; to host memory they are kept in order by the
 * ring. */
TEST_F(PortOrder, PutsAndGetsWaitForAPutOfTheSameMemory) {
    Outcome first;
    Outcome refused;
    Outcome beside;
    ASSERT_EQ(put_part(first, 1), Status::in_progress);
    std::vector<unsigned char> got(kPart);
    for (const size_t offset : {size_t{1}, kPart, 2 * kPart - 1}) {
        const size_t length = offset == kPart ? 1 : kPart;
        RemoteMemory of_gpu = registration_.at(offset);
        of_gpu.buffer.kind = MemoryKind::device;
        EXPECT_EQ(connection_.put(source_.data(), length, of_gpu, nullptr, refused.completion()),
                  Status::no_resource);
        EXPECT_EQ(connection_.get(got.data(), length, registration_.at(offset), nullptr,
                                  refused.completion()),
                  Status::no_resource);
    }
    ASSERT_EQ(put_part(beside, 0), Status::in_progress);
    ASSERT_TRUE(run_until(first));
    ASSERT_TRUE(run_until(beside));
    Outcome second;
    Outcome third;
    ASSERT_EQ(put_part(second, 1), Status::in_progress);
    fill_pattern(&source_[2 * kPart], kPart, 7);
    ASSERT_EQ(connection_.put(&source_[2 * kPart], kPart, registration_.at(kPart), nullptr,
                              third.completion()),
              Status::in_progress);
    ASSERT_TRUE(run_until(third));
    EXPECT_TRUE(second.done());
    EXPECT_EQ(pattern_mismatch(&target_[kPart], kPart, 7), kPart);
    EXPECT_EQ(refused.calls, 0u);
}

// ---------------------------------------------------------------- cancel

TEST_F(PortOrder, CancelEndsAnOwnersPutsAndItsMemoryIsFree) {
    Outcome cancelled[2];
    Outcome kept;
    auto source = std::make_unique<unsigned char[]>(kLong);
    for (size_t part = 0; part < 2; ++part) {
        ASSERT_EQ(put_part(cancelled[part], part, &kOwner[0], source.get()), Status::in_progress);
    }
    ASSERT_EQ(put_part(kept, 2, &kOwner[1]), Status::in_progress);
    run_a_little();
    ASSERT_EQ(cancelled[0].calls, 0u);
    connection_.cancel(&kOwner[0]);
    source.reset();
    ASSERT_TRUE(run_until(kept));
    EXPECT_EQ(kept.status, Status::ok);
    settle({&a_, &b_});
    EXPECT_EQ(cancelled[0].calls + cancelled[1].calls, 0u);
    EXPECT_TRUE(std::equal(&target_[2 * kPart], &target_[kLong - 1] + 1, &source_[2 * kPart]));
    EXPECT_TRUE(a_->idle());
}

TEST_F(PortOrder, CancelEndsAnOwnersGetsAndItsMemoryIsFree) {
    Outcome cancelled[2];
    Outcome kept;
    auto local = std::make_unique<unsigned char[]>(kLong);
    std::vector<unsigned char> other(kLong);
    fill_pattern(target_.data(), kLong, 5);
    for (Outcome &outcome : cancelled) {
        ASSERT_EQ(connection_.get(local.get(), kLong, registration_.at(), &kOwner[0],
                                  outcome.completion()),
                  Status::in_progress);
    }
    ASSERT_EQ(
        connection_.get(other.data(), kLong, registration_.at(), &kOwner[1], kept.completion()),
        Status::in_progress);
    run_a_little();
    connection_.cancel(&kOwner[0]);
    local.reset();
    ASSERT_TRUE(run_until(kept));
    settle({&a_, &b_});
    EXPECT_EQ(cancelled[0].calls + cancelled[1].calls, 0u);
    EXPECT_EQ(kept.status, Status::ok);
    EXPECT_EQ(pattern_mismatch(other.data(), kLong, 5), kLong);
    EXPECT_TRUE(b_->idle());
}

TEST_F(PortOrder, CancelEndsFlushesOfItsOwnerOnly) {
    Outcome cancelled;
    Outcome flush_of_cancelled;
    Outcome flush_of_other;
    ASSERT_EQ(put(cancelled, kLong, &kOwner[0]), Status::in_progress);
    ASSERT_EQ(connection_.flush(&kOwner[0], flush_of_cancelled.completion()), Status::in_progress);
    ASSERT_EQ(connection_.flush(&kOwner[1], flush_of_other.completion()), Status::in_progress);
    run_a_little();
    connection_.cancel(&kOwner[0]);
    EXPECT_TRUE(run_until(flush_of_other)) << "nothing is left that it could wait for";
    settle({&a_, &b_});
    EXPECT_EQ(cancelled.calls + flush_of_cancelled.calls, 0u);
}

TEST_F(PortOrder, GetThatWasCancelledDoesNotReadMemoryThatIsGone) {
    const LogCapture log;
    auto memory = std::make_unique<unsigned char[]>(kLong);
    auto registration = std::make_unique<Registration>(memory.get(), kLong);
    std::vector<unsigned char> local(kLong);
    Outcome outcome;
    ASSERT_EQ(
        connection_.get(local.data(), kLong, registration->at(), &kOwner[0], outcome.completion()),
        Status::in_progress);
    run_a_little();
    connection_.cancel(&kOwner[0]);
    // b learns from its user, not from the connection, that nobody reads it any more.
    registration.reset();
    memory.reset();
    settle({&a_, &b_});
    EXPECT_EQ(outcome.calls, 0u);
    EXPECT_TRUE(b_->idle());
    EXPECT_EQ(log.count("not registered"), 1u);
}

TEST_F(PortOrder, CancelledPutsLeaveNothingBehind) {
    // Chunks of a kilobyte; each put ends after a few of them.
    TestPort sender({4096, 4096, 4096, 64});
    Connection &connection = sender.connection(b_);
    for (unsigned i = 0; i < 70000; ++i) {
        ASSERT_EQ(connection.put(source_.data(), 8192, registration_.at(), &kOwner[0], {}),
                  Status::in_progress);
        sender->progress();
        b_->progress();
        connection.cancel(&kOwner[0]);
    }
    Outcome outcome;
    ASSERT_EQ(
        connection.put(source_.data(), 8192, registration_.at(), nullptr, outcome.completion()),
        Status::in_progress);
    EXPECT_TRUE(progress_until({&sender, &b_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::ok);
}

TEST_F(PortOrder, OwnerThatIsCancelledWhileTheLinkFailsGetsNoCompletion) {
    Outcome cancelled;
    struct Canceller {
        Connection *connection;
        static void run(void *self, Status status) {
            EXPECT_EQ(status, Status::peer_failed);
            static_cast<Canceller *>(self)->connection->cancel(&kOwner[1]);
        }
    } canceller = {&connection_};
    ASSERT_EQ(connection_.put(source_.data(), kPart, registration_.at(), &kOwner[0],
                              {Canceller::run, &canceller}),
              Status::in_progress);
    ASSERT_EQ(put_part(cancelled, 1, &kOwner[1]), Status::in_progress);
    connection_.fail();
    EXPECT_EQ(cancelled.calls, 0u);
}

}  // namespace
}  // namespace gpushm
