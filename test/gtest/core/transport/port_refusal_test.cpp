// SPDX-License-Identifier: BSD-3-Clause
// Transfers that must be refused, and peers that leave.
#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 1 << 20;
constexpr size_t kHole = 4096;  // registered memory begins and ends this far inside

class PortRefusals : public testing::TestWithParam<bool> {
protected:
    PortRefusals()
        : a_(GetParam() ? kSmallPort : kNoRing),
          b_(GetParam() ? kSmallPort : kNoRing),
          memory_(kBytes, 0x5a),
          local_(kBytes, 0x33),
          registration_(memory_.data() + kHole, kBytes - 2 * kHole) {}

    bool all_are(const std::vector<unsigned char> &memory, unsigned char value) {
        return std::all_of(memory.begin(), memory.end(),
                           [&](unsigned char byte) { return byte == value; });
    }

    /** Both a put and a get of it fail, say so once, and change nothing. */
    void expect_refused(const RemoteMemory &remote, size_t length) {
        for (const bool put : {true, false}) {
            SCOPED_TRACE(put ? "put" : "get");
            const LogCapture log;
            Outcome outcome;
            const Status status =
                put ? connection_.put(local_.data(), length, remote, nullptr, outcome.completion())
                    : connection_.get(local_.data(), length, remote, nullptr, outcome.completion());
            ASSERT_EQ(status, Status::in_progress);
            ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
            settle({&a_, &b_});
            EXPECT_EQ(outcome.calls, 1u);
            EXPECT_EQ(outcome.status, Status::gpu_error);
            EXPECT_EQ(log.count("not registered"), 1u);
            EXPECT_EQ(log.count("could not complete a transfer"), 1u);
            EXPECT_TRUE(all_are(memory_, 0x5a));
            EXPECT_TRUE(all_are(local_, 0x33));
        }
    }

    void expect_works() {
        Outcome outcome;
        std::vector<unsigned char> back(1000);
        ASSERT_EQ(
            connection_.get(back.data(), 1000, registration_.at(), nullptr, outcome.completion()),
            Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_TRUE(all_are(back, 0x5a));
    }

    TestPort a_;
    TestPort b_;
    Connection &connection_ = a_.connection(b_);
    std::vector<unsigned char> memory_;
    std::vector<unsigned char> local_;
    Registration registration_;
};

TEST_P(PortRefusals, MemoryOutsideOfARegistrationIsNeverTouched) {
    const RemoteMemory all = registration_.at();
    const size_t length = kBytes - 2 * kHole;
    const struct {
        const char *what;
        RemoteMemory remote;
        size_t length;
    } cases[] = {
        {"no registration", {all.address, 0}, 100},
        {"another id", {all.address, all.registration + 1000}, 100},
        {"every bit of the id", {all.address, ~uint64_t{0}}, 100},
        {"a byte before", {all.address - 1, all.registration}, 100},
        {"a byte behind", {all.address, all.registration}, length + 1},
        {"the end", {all.address + length, all.registration}, 1},
        {"many chunks, the last one too long", {all.address + 1, all.registration}, length},
        {"far away", {all.address + (uint64_t{1} << 46), all.registration}, 100},
        {"over the end of the address space", {~uint64_t{0} - 9, all.registration}, 100},
        {"null", {0, all.registration}, 100},
    };
    for (const auto &entry : cases) {
        SCOPED_TRACE(entry.what);
        expect_refused(entry.remote, entry.length);
        expect_works();
    }
}

TEST_P(PortRefusals, RegistrationThatIsGoneIsRefused) {
    RemoteMemory gone;
    {
        const Registration registration(memory_.data(), kBytes);
        gone = registration.at();
    }
    expect_refused(gone, 100);
    expect_works();
}

TEST_P(PortRefusals, MemoryThatGoesAwayDuringATransferIsNotTouchedAnyMore) {
    for (const bool put : {true, false}) {
        SCOPED_TRACE(put ? "put" : "get");
        const LogCapture log;
        auto memory = std::make_unique<unsigned char[]>(kBytes);
        auto registration = std::make_unique<Registration>(memory.get(), kBytes);
        Outcome outcome;
        const RemoteMemory remote = registration->at();
        ASSERT_EQ(
            put ? connection_.put(local_.data(), kBytes, remote, nullptr, outcome.completion())
                : connection_.get(local_.data(), kBytes, remote, nullptr, outcome.completion()),
            Status::in_progress);
        for (int i = 0; i < 3; ++i) {
            a_->progress();
            b_->progress();
        }
        ASSERT_FALSE(outcome.done());
        registration.reset();
        memory.reset();  // AddressSanitizer sees an access
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::gpu_error);
        EXPECT_EQ(log.count("not registered"), 1u);
        expect_works();
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, PortRefusals, testing::Bool(),
                         [](const auto &info) { return info.param ? "Ring" : "Slots"; });

// ---------------------------------------------------------------- connecting

TEST(PortConnecting, RefusesWhatIsNoPeer) {
    TestPort a;
    TestPort b;
    const MailboxAddress good = b->address();
    MailboxAddress address = good;
    const char *why = nullptr;
    address.protocol_version += 1;
    EXPECT_EQ(a->connect(address, &why), nullptr);
    EXPECT_NE(std::string(why).find("version"), std::string::npos);
    address = good;
    address.cookie.low ^= 1;
    EXPECT_EQ(a->connect(address, &why), nullptr);
    address = good;
    address.segment_fd = -1;
    address.cookie.low ^= 2;
    EXPECT_EQ(a->connect(address, &why), nullptr);
    ASSERT_NE(a->connect(good, &why), nullptr);
    EXPECT_EQ(a->connect(good, &why), a->connect(good, &why)) << "one connection a peer";
}

TEST(PortConnecting, MailboxWithOtherSlotsIsNoPeer) {
    TestPort a;
    const auto mailbox = MailboxReceiver::create(16, 4096);
    const char *why = nullptr;
    EXPECT_EQ(a->connect(mailbox->address(), &why), nullptr);
    EXPECT_NE(std::string(why).find("slots"), std::string::npos);
}

// ---------------------------------------------------------------- leaving

/** a has operations of every kind under way when b's port ends, in a process that lives on. */
class PortLeaving : public testing::Test {
protected:
    PortLeaving() : memory_(kBytes), local_(kBytes), registration_(memory_.data(), kBytes) {}

    TestPort a_;
    TestPort b_;
    std::vector<unsigned char> memory_;
    std::vector<unsigned char> local_;
    Registration registration_;
};

TEST_F(PortLeaving, WhatWaitsForThePeerEndsInBoundedTime) {
    Connection &connection = a_.connection(b_);
    b_.connection(a_);
    Outcome put;
    Outcome get;
    Outcome flush;
    ASSERT_EQ(
        connection.put(local_.data(), kBytes / 2, registration_.at(), nullptr, put.completion()),
        Status::in_progress);
    ASSERT_EQ(connection.get(local_.data(), kBytes / 2, registration_.at(kBytes / 2), nullptr,
                             get.completion()),
              Status::in_progress);
    ASSERT_EQ(connection.flush(nullptr, flush.completion()), Status::in_progress);
    for (int i = 0; i < 3; ++i) {
        a_->progress();
        b_->progress();
    }
    b_.destroy();
    ASSERT_TRUE(progress_until({&a_}, [&] { return put.done() && get.done() && flush.done(); }));
    EXPECT_EQ(put.status, Status::peer_failed);
    EXPECT_EQ(get.status, Status::peer_failed);
    EXPECT_EQ(flush.status, Status::peer_failed);
    EXPECT_TRUE(progress_until({&a_}, [&] { return a_.failed_connections.size() == 1; }));
    settle({&a_});
    EXPECT_EQ(a_.failed_connections.size(), 1u);
    EXPECT_EQ(mappings_named("gpushm-ring"), 0u) << "nobody needs the rings any more";
}

TEST_F(PortLeaving, LinkWithNothingUnderWayDoesNotFail) {
    Connection &connection = a_.connection(b_);
    make_ring_ready(a_, b_);
    make_ring_ready(b_, a_);
    b_.destroy();
    settle({&a_});
    for (int i = 0; i < 10000; ++i) {
        a_->progress();
    }
    EXPECT_TRUE(a_.failed_connections.empty());
    Outcome flush;
    EXPECT_EQ(connection.flush(nullptr, flush.completion()), Status::ok);
    EXPECT_TRUE(a_->idle());
}

TEST_F(PortLeaving, ReplyThatNobodyWaitsForEndsQuietly) {
    Connection &connection = b_.connection(a_);
    Outcome outcome;
    ASSERT_EQ(
        connection.get(local_.data(), kBytes, registration_.at(), nullptr, outcome.completion()),
        Status::in_progress);
    for (int i = 0; i < 3; ++i) {
        a_->progress();
        b_->progress();
    }
    ASSERT_FALSE(outcome.done());
    b_.destroy();
    EXPECT_TRUE(progress_until({&a_}, [&] { return a_->idle(); }));
    EXPECT_TRUE(a_.failed_connections.empty());
}

TEST_F(PortLeaving, SenderThatFindsNoRoomIsToldInBoundedTime) {
    Connection &connection = a_.connection(b_);
    b_.connection(a_);
    b_.destroy();
    a_->progress();
    Status status = Status::ok;
    EXPECT_TRUE(progress_until({&a_}, [&] {
        status = connection.am_short(1, 0, nullptr, 0);
        if (status == Status::no_resource) {
            connection.check_peer();
        }
        return status != Status::ok && status != Status::no_resource;
    }));
    EXPECT_EQ(status, Status::peer_failed);
    settle({&a_});
    EXPECT_EQ(a_.failed_connections.size(), 1u);
}

}  // namespace
}  // namespace gpushm
