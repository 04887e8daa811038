// SPDX-License-Identifier: BSD-3-Clause
// Gets between hosts that both processes copy by CMA (HostReads): where the operating system
// refuses, and where the helper dies or stops with a piece of the transfer in its hands.
#include "test/gtest/core/transport/port_support.hpp"

#include "core/base/cma.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = (4 << 20) + 100;
constexpr unsigned kAlways = ~0u;  // a copy that is refused is none of these
constexpr size_t kMinHelped = 64 << 10;

/** Host memory of any process: what a remote key says of it. */
RemoteMemory host_memory(const Registration &registration) {
    RemoteMemory remote = registration.at();
    remote.buffer.owner = process_cookie().low;
    return remote;
}

// ---------------------------------------------------------------- two ports of this process

class PortShared : public testing::Test {
protected:
    PortShared() : source_(kBytes), local_(kBytes), registration_(source_.data(), kBytes) {}

    /** Starts a get of fresh data. */
    void start(TestPort &reader, Outcome &outcome) {
        fill_pattern(source_.data(), kBytes, ++seed_);
        ASSERT_EQ(reader.connection(b_).get(local_.data(), kBytes, host_memory(registration_),
                                            nullptr, outcome.completion()),
                  Status::in_progress);
    }
    void expect_data(const Outcome &outcome) {
        EXPECT_EQ(outcome.calls, 1u);
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(pattern_mismatch(local_.data(), kBytes, seed_), kBytes);
    }
    void expect_get(TestPort &reader) {
        Outcome outcome;
        start(reader, outcome);
        ASSERT_TRUE(progress_until({&reader, &b_}, [&] { return outcome.done(); }));
        expect_data(outcome);
    }
    /** A get that is just long enough to be helped with. */
    void get_least(std::initializer_list<TestPort *> progressed) {
        fill_pattern(source_.data(), kMinHelped, ++seed_);
        Outcome outcome;
        ASSERT_EQ(a_.connection(b_).get(local_.data(), kMinHelped, host_memory(registration_),
                                        nullptr, outcome.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until(progressed, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(pattern_mismatch(local_.data(), kMinHelped, seed_), kMinHelped);
    }
    /** Two gets of a new reader, whose copies `copies` refuses in the first. */
    void expect_ring_taken(const RefusedCopies &copies, unsigned reads, unsigned writes) {
        TestPort reader(kCmaPort);
        expect_get(reader);
        EXPECT_GE(copies.reads(), reads);
        EXPECT_GE(copies.writes(), writes);
        const unsigned tried = copies.reads() + copies.writes();
        expect_get(reader);
        EXPECT_EQ(copies.reads() + copies.writes(), tried) << "once refused, never tried again";
    }

    TestPort a_{kCmaPort};
    TestPort b_{kCmaPort};
    std::vector<unsigned char> source_;
    std::vector<unsigned char> local_;
    Registration registration_;
    uint64_t seed_ = 0;
};

TEST_F(PortShared, BothCopy) {
    const RefusedCopies copies(kAlways, kAlways);
    expect_get(a_);
    EXPECT_GT(copies.reads(), 2u);
    EXPECT_GT(copies.writes(), 2u);
}

/** It is given back to the program, by whose next bytes nobody is to be deceived. */
TEST_F(PortShared, WhatIsNotRegisteredAnyMoreIsNotRead) {
    for (const size_t length : {size_t{4097}, kMinHelped, kBytes}) {
        Registration source(source_.data(), kBytes);
        const RemoteMemory remote = host_memory(source);
        source.end();
        Outcome outcome;
        ASSERT_EQ(
            a_.connection(b_).get(local_.data(), length, remote, nullptr, outcome.completion()),
            Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::gpu_error);
    }
}

TEST_F(PortShared, WhatIsDeregisteredMeanwhileDoesNotCount) {
    Registration source(source_.data(), kBytes);
    const RemoteMemory remote = host_memory(source);
    Outcome outcome;
    ASSERT_EQ(a_.connection(b_).get(local_.data(), kBytes, remote, nullptr, outcome.completion()),
              Status::in_progress);
    ASSERT_TRUE(a_->shared_transfer(0).claim_last(1));
    for (int i = 0; i < 100; ++i) {
        a_->progress();  // reads all but that piece
    }
    EXPECT_FALSE(outcome.done());
    source.end();
    a_->shared_transfer(0).finish(1, true);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::gpu_error);
}

/** A program may register and deregister memory for each message. */
TEST_F(PortShared, TheEndOfOtherRegistrationsDisturbsNoReader) {
    for (int i = 0; i < 100; ++i) {
        Registration other(source_.data(), kBytes);
        other.end();
    }
    const RefusedCopies copies(kAlways, kAlways);
    expect_get(a_);
    EXPECT_NE(copies.reads(), 0u);
}

TEST_F(PortShared, LittleIsReadWithinTheCallThatEndsLater) {
    const RefusedCopies copies(kAlways, kAlways);
    for (const size_t length : {size_t{1}, size_t{4097}, kMinHelped - 1}) {
        fill_pattern(source_.data(), kBytes, ++seed_);
        memset(local_.data(), 0, kBytes);
        const unsigned before = copies.reads();
        Outcome outcome;
        EXPECT_EQ(a_.connection(b_).get(local_.data(), length, host_memory(registration_), nullptr,
                                        outcome.completion()),
                  Status::in_progress);
        EXPECT_EQ(copies.reads(), before + 1);
        EXPECT_EQ(pattern_mismatch(local_.data(), length, seed_), length);
        EXPECT_EQ(local_[length], 0);
        EXPECT_FALSE(outcome.done());
        EXPECT_FALSE(a_->arm()) << "nobody would wake the process";
        a_->progress();
        EXPECT_EQ(outcome.calls, 1u);
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(copies.reads(), before + 1);
    }
    EXPECT_FALSE(a_.connection(b_).busy());
    Outcome outcome;
    EXPECT_EQ(a_.connection(b_).get(local_.data(), kMinHelped, host_memory(registration_), nullptr,
                                    outcome.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
}

TEST_F(PortShared, LittleThatIsReadEndsBeforeAFlushBehindIt) {
    Outcome get;
    Outcome flush;
    ASSERT_EQ(a_.connection(b_).get(local_.data(), 8192, host_memory(registration_), nullptr,
                                    get.completion()),
              Status::in_progress);
    ASSERT_EQ(a_.connection(b_).flush(nullptr, flush.completion()), Status::in_progress);
    EXPECT_FALSE(get.done() || flush.done());
    a_->progress();
    EXPECT_EQ(get.calls, 1u);
    EXPECT_EQ(flush.calls, 1u);
    EXPECT_EQ(a_.connection(b_).flush(nullptr, flush.completion()), Status::ok);
}

TEST_F(PortShared, LittleThatIsReadForAnOwnerThatGoesEndsSilently) {
    Outcome gone;
    Outcome other;
    const int owners[2] = {};
    ASSERT_EQ(a_.connection(b_).get(local_.data(), 8192, host_memory(registration_), &owners[0],
                                    gone.completion()),
              Status::in_progress);
    ASSERT_EQ(a_.connection(b_).get(local_.data(), 8192, host_memory(registration_), &owners[1],
                                    other.completion()),
              Status::in_progress);
    a_.connection(b_).cancel(&owners[0]);
    a_->progress();
    EXPECT_FALSE(gone.done());
    EXPECT_EQ(other.calls, 1u);
    EXPECT_EQ(other.status, Status::ok);
}

TEST_F(PortShared, LeastThatIsHelpedWithHasTwoPieces) {
    for (const size_t length : {kMinHelped, kMinHelped + 1, size_t{100000}, size_t{128 << 10}}) {
        fill_pattern(source_.data(), kBytes, ++seed_);
        memset(local_.data(), 0, kBytes);
        const RefusedCopies copies(kAlways, kAlways);
        Outcome outcome;
        ASSERT_EQ(a_.connection(b_).get(local_.data(), length, host_memory(registration_), nullptr,
                                        outcome.completion()),
                  Status::in_progress);
        // Before the reader begins.
        ASSERT_TRUE(progress_until({&b_}, [&] { return copies.writes() != 0; }));
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(copies.reads() + copies.writes(), 2u) << length << " bytes";
        EXPECT_EQ(pattern_mismatch(local_.data(), length, seed_), length);
        EXPECT_EQ(local_[length], 0);
    }
}

TEST_F(PortShared, EachSideCopiesItsHalf) {
    constexpr size_t kLength = 100000;
    constexpr size_t kHalf = 53248;  // whole pages
    fill_pattern(source_.data(), kBytes, ++seed_);
    const RefusedCopies copies(kAlways, kAlways);
    Outcome outcome;
    ASSERT_EQ(a_.connection(b_).get(local_.data(), kLength, host_memory(registration_), nullptr,
                                    outcome.completion()),
              Status::in_progress);
    SharedTransfer &transfer = a_->shared_transfer(0);
    ASSERT_EQ(transfer.claim_last(1), 1u);  // as the peer does
    ASSERT_TRUE(progress_until({&a_}, [&] { return copies.reads() != 0; }));
    a_->progress();
    EXPECT_EQ(copies.reads(), 1u);
    EXPECT_EQ(pattern_mismatch(local_.data(), kHalf, seed_), kHalf);
    EXPECT_EQ(local_[kHalf], 0) << "the peer's half";
    EXPECT_FALSE(outcome.done());
    memcpy(local_.data() + kHalf, source_.data() + kHalf, kLength - kHalf);
    transfer.finish(1, true);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::ok);
    EXPECT_EQ(copies.reads() + copies.writes(), 1u);
    EXPECT_EQ(pattern_mismatch(local_.data(), kLength, seed_), kLength);
}

TEST_F(PortShared, GetThatWaitsForItsHelperHoldsUpNoOther) {
    Outcome slow;
    ASSERT_EQ(a_.connection(b_).get(local_.data(), kMinHelped, host_memory(registration_), nullptr,
                                    slow.completion()),
              Status::in_progress);
    ASSERT_TRUE(a_->shared_transfer(0).claim_last(1));  // by a helper that is not scheduled then
    std::vector<unsigned char> other(kMinHelped);
    Outcome quick;
    ASSERT_EQ(a_.connection(b_).get(other.data(), other.size(), host_memory(registration_), nullptr,
                                    quick.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&a_}, [&] { return quick.done(); }));
    EXPECT_FALSE(slow.done());
    a_->shared_transfer(0).finish(1, true);
    ASSERT_TRUE(progress_until({&a_}, [&] { return slow.done(); }));
}

TEST_F(PortShared, PeerThatMakesNoProgressIsAskedForHelpOnlyWhileItsMailboxHasRoom) {
    constexpr unsigned kGetsForARequest = 13;
    for (unsigned i = 0; i < 2 * kGetsForARequest * kCmaPort.cell_count; ++i) {
        get_least({&a_});
    }
    EXPECT_FALSE(a_.connection(b_).busy()) << "nothing waits to be sent";
}

TEST_F(PortShared, PeerThatDidNotHelpIsAskedLessOften) {
    const RefusedCopies copies(kAlways, kAlways);
    std::vector<unsigned> asked;
    for (unsigned i = 0; i < 36; ++i) {
        const unsigned before = copies.reads();
        get_least({&a_});
        if (copies.reads() - before == 2) {  // what nobody is to help with is one piece
            asked.push_back(i);
        }
    }
    EXPECT_EQ(asked, (std::vector<unsigned>{0, 1, 14, 27}));
}

TEST_F(PortShared, PeerThatHelpsAgainIsAskedAgain) {
    const RefusedCopies copies(kAlways, kAlways);
    for (unsigned i = 0; i < 14; ++i) {
        get_least({&a_});
    }
    settle({&a_, &b_});
    for (unsigned i = 0; i < 3; ++i) {
        const unsigned before = copies.writes();
        Outcome outcome;
        ASSERT_EQ(a_.connection(b_).get(local_.data(), kMinHelped, host_memory(registration_),
                                        nullptr, outcome.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&b_}, [&] { return copies.writes() != before; }));
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    }
}

TEST_F(PortShared, LongGetsAreHelpedWithAlsoWhereShortOnesAreNot) {
    const RefusedCopies copies(kAlways, kAlways);
    for (unsigned period = 0; period < 3; ++period) {
        for (unsigned i = 0; i < 7; ++i) {
            get_least({&a_});
        }
        settle({&a_, &b_});
        const unsigned before = copies.writes();
        expect_get(a_);
        EXPECT_NE(copies.writes(), before);
    }
}

/** Its peers read as quickly as it writes. */
TEST_F(PortShared, ProcessThatReadsItselfHelpsNobody) {
    const RefusedCopies copies(kAlways, kAlways);
    TestPort c(kCmaPort);
    std::vector<unsigned char> others(kBytes);
    Outcome own;
    start(a_, own);
    Outcome other;
    ASSERT_EQ(c.connection(a_).get(others.data(), kBytes, host_memory(registration_), nullptr,
                                   other.completion()),
              Status::in_progress);
    for (int i = 0; i < 4; ++i) {
        a_->progress();
    }
    EXPECT_FALSE(own.done());
    EXPECT_EQ(copies.writes(), 0u);
    EXPECT_GE(copies.reads(), 4u);
    ASSERT_TRUE(progress_until({&a_}, [&] { return copies.writes() != 0; }));
    EXPECT_TRUE(own.done());
    ASSERT_TRUE(progress_until({&a_, &b_, &c}, [&] { return other.done(); }));
    expect_data(own);
    EXPECT_EQ(pattern_mismatch(others.data(), kBytes, seed_), kBytes);
}

/** Messages are served between pieces. */
TEST_F(PortShared, NoPieceIsVeryLong) {
    constexpr size_t kLong = 40u << 20;
    std::vector<unsigned char> source(kLong, 1);
    std::vector<unsigned char> local(kLong);
    Registration registration(source.data(), kLong);
    const RefusedCopies copies(kAlways, kAlways);
    Outcome outcome;
    ASSERT_EQ(a_.connection(b_).get(local.data(), kLong, host_memory(registration), nullptr,
                                    outcome.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    EXPECT_EQ(copies.reads() + copies.writes(), 40u);
    EXPECT_EQ(local, source);
}

TEST_F(PortShared, LittleThatTheKernelRefusesTakesTheRing) {
    const RefusedCopies copies(0, kAlways);
    for (int i = 0; i < 2; ++i) {
        fill_pattern(source_.data(), kBytes, ++seed_);
        Outcome outcome;
        EXPECT_EQ(a_.connection(b_).get(local_.data(), 1000, host_memory(registration_), nullptr,
                                        outcome.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(pattern_mismatch(local_.data(), 1000, seed_), 1000u);
    }
    EXPECT_EQ(copies.reads(), 1u) << "once refused, never tried again";
}

TEST_F(PortShared, ReaderDoesAllWhilePeerIsBusyElsewhere) {
    const RefusedCopies copies(kAlways, kAlways);
    Outcome outcome;
    start(a_, outcome);
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
    expect_data(outcome);
    settle({&a_, &b_});
    EXPECT_EQ(copies.writes(), 0u) << "help comes too late";
}

TEST_F(PortShared, HelpThatComesLateMeetsNoTransferOfAnotherPeer) {
    const RefusedCopies copies(kAlways, kAlways);
    Outcome first;
    start(a_, first);
    ASSERT_TRUE(progress_until({&a_}, [&] { return first.done(); }));
    expect_data(first);
    fill_pattern(local_.data(), kBytes, 99);  // the application goes on with it
    TestPort other(kCmaPort);
    std::vector<unsigned char> second_local(kBytes);
    Outcome second;
    ASSERT_EQ(a_.connection(other).get(second_local.data(), kBytes, host_memory(registration_),
                                       nullptr, second.completion()),
              Status::in_progress);
    settle({&b_});  // finds the request of the first transfer, and the words of the second
    EXPECT_EQ(copies.writes(), 0u);
    ASSERT_TRUE(progress_until({&a_, &other}, [&] { return second.done(); }));
    EXPECT_EQ(second.status, Status::ok);
    EXPECT_EQ(pattern_mismatch(second_local.data(), kBytes, seed_), kBytes);
    EXPECT_EQ(pattern_mismatch(local_.data(), kBytes, 99), kBytes);
}

TEST_F(PortShared, RequestsThatWaitLongerThanTheirTransfersAreNoNonsense) {
    constexpr size_t kLength = 192 << 10;  // three pieces
    const LogCapture log;
    std::vector<Outcome> outcomes(200);
    size_t begun = 0;
    const auto begin = [&](size_t count) {
        for (const size_t end = begun + count; begun < end; ++begun) {
            ASSERT_EQ(a_.connection(b_).get(local_.data(), kLength, host_memory(registration_),
                                            nullptr, outcomes[begun].completion()),
                      Status::in_progress);
        }
    };
    begin(kSharedTransfers);
    for (int i = 0; i < 4; ++i) {
        b_->progress();  // takes sixteen requests, and claims two pieces
    }
    // The reader does most of them alone and begins others, before the peer comes to anything.
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcomes[40].done(); }));
    begin(40);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcomes[begun - 1].done(); }));
    EXPECT_EQ(log.count("invalid "), 0u);
}

TEST_F(PortShared, ReaderThatTheKernelRefusesTakesTheRing) {
    for (const unsigned reads : {0u, 1u, 3u}) {
        expect_ring_taken(RefusedCopies(reads, kAlways), reads + 1, 0);
    }
}

TEST_F(PortShared, HelperThatTheKernelRefusesCostsNoData) {
    for (const unsigned writes : {0u, 1u, 3u}) {
        expect_ring_taken(RefusedCopies(kAlways, writes), 1, writes + 1);
    }
}

TEST_F(PortShared, HelperWritesOnlyMemoryThatIsRegistered) {
    auto gone = std::make_unique<Registration>(source_.data(), kBytes);
    const RemoteMemory remote = host_memory(*gone);
    gone.reset();
    const RefusedCopies copies(kAlways, kAlways);
    Outcome outcome;
    a_.connection(b_).get(local_.data(), kBytes, remote, nullptr, outcome.completion());
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    settle({&a_, &b_});
    EXPECT_EQ(copies.writes(), 0u);
}

TEST_F(PortShared, WrongWordsOfATransferDoNoHarm) {
    const LogCapture log;
    const uint64_t id = 1;  // of the first use of a port
    const uint64_t claims[] = {0,
                               ~uint64_t{0},
                               id << 32,
                               id << 32 | 0xffffffff,
                               id << 32 | 0xffff0000,
                               id << 32 | 0xffff,
                               id << 32 | 0xffff0000 | 5,
                               (id + 1) << 32 | 0x100000,
                               uint64_t{0xffff} << 16};
    const uint64_t finished[] = {0, ~uint64_t{0}, id << 32 | 1u << 31, id << 32 | 0x7fffffff};
    for (const uint64_t claimed : claims) {
        for (const uint64_t done : finished) {
            for (const int moment : {0, 1, 3}) {
                TestPort reader(kCmaPort);
                Outcome outcome;
                start(reader, outcome);
                for (int i = 0; i < moment; ++i) {
                    b_->progress();
                    reader->progress();
                }
                const char *why = "";
                auto words = MailboxSender::attach(reader->address(), b_->address(), &why);
                words->shared_transfer(0).claims.store(claimed);
                words->shared_transfer(0).finished.store(done);
                EXPECT_TRUE(progress_until({&reader, &b_}, [&] { return outcome.done(); }))
                    << std::hex << claimed << ", " << done;
            }
        }
    }
}

// ---------------------------------------------------------------- a helper by hand

/** What the helper tells the test. */
struct HelperAddress {
    MailboxAddress mailbox;
    RemoteMemory memory;  // kBytes of the pattern 7
};

/** The last piece of a transfer, which the helper has claimed. */
class ClaimedPiece {
public:
    ClaimedPiece(const HelpRequest &request, SharedTransfer &transfer)
        : request_(request), transfer_(transfer), piece_(transfer.claim_last(request.shared.id)) {}
    bool claimed() const { return piece_.has_value(); }
    void write(pid_t owner) const {
        const uint64_t offset = *piece_ * request_.piece_bytes;
        const bool written =
            write_memory(owner, reinterpret_cast<const void *>(request_.address + offset),
                         request_.destination + offset, request_.length - offset);
        transfer_.finish(request_.shared.id, written);
    }

private:
    HelpRequest request_;
    SharedTransfer &transfer_;
    std::optional<uint32_t> piece_;
};

/** A process that claims the last piece of the first transfer, and writes it when it is told. */
int claim_and_obey(const Channel &channel, const MailboxAddress &owner) {
    auto mailbox = MailboxReceiver::create(64, kSlotBytes);
    const ShownRegistrations shown(*mailbox);
    std::vector<unsigned char> memory(kBytes);
    fill_pattern(memory.data(), kBytes, 7);
    const Registration registration(memory.data(), kBytes);
    channel.send(HelperAddress{mailbox->address(), host_memory(registration)});
    char order;
    channel.receive(&order);
    ReceivedCell cell;
    HelpRequest request;
    if (!mailbox->receive(&cell) || cell.kind != CellKind::help_request) {
        return 1;
    }
    memcpy(&request, cell.payload, sizeof(request));
    const char *why = "";
    auto sender = MailboxSender::attach(owner, mailbox->address(), &why);
    const ClaimedPiece piece(request, sender->shared_transfer(request.shared.index));
    channel.send(piece.claimed());
    if (channel.receive(&order)) {
        piece.write(owner.pid);
        channel.receive(&order);
    }
    return 0;
}

class PortHelper : public testing::Test {
protected:
    PortHelper()
        : helper_([own = port_->address()](const Channel &channel) {
              return claim_and_obey(channel, own);
          }),
          local_(kBytes) {
        EXPECT_TRUE(helper_.channel().receive(&address_));
        connection_ = &port_.connection(address_.mailbox);
        EXPECT_EQ(
            connection_->get(local_.data(), kBytes, address_.memory, this, outcome_.completion()),
            Status::in_progress);
        helper_.channel().send('c');
        bool claimed = false;
        EXPECT_TRUE(helper_.channel().receive(&claimed) && claimed);
        // All but that piece is read now.
        settle_for(std::chrono::milliseconds(200));
        EXPECT_FALSE(outcome_.done());
    }

    /** Another get of the owner, whose last piece is claimed, too. */
    SharedUse begin_claimed_get() {
        EXPECT_EQ(
            connection_->get(local_.data(), kBytes, address_.memory, this, outcome_.completion()),
            Status::in_progress);
        for (uint32_t index = 0; index < kSharedTransfers; ++index) {
            for (uint32_t id = 1; id < 10; ++id) {
                if (port_->shared_transfer(index).claim_last(id)) {
                    return {index, id};
                }
            }
        }
        ADD_FAILURE() << "nothing can be claimed";
        return {};
    }

    std::chrono::duration<double> time_of_cancel() {
        const auto begin = std::chrono::steady_clock::now();
        connection_->cancel(this);
        return std::chrono::steady_clock::now() - begin;
    }

    void settle_for(std::chrono::milliseconds time) {
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) {
            port_->progress();
        }
    }

    LogCapture log_;
    TestPort port_{kCmaPort};
    Child helper_;
    HelperAddress address_;
    std::vector<unsigned char> local_;
    Connection *connection_ = nullptr;
    Outcome outcome_;
};

TEST_F(PortHelper, ThatIsSlowIsWaitedFor) {
    EXPECT_TRUE(port_.failed_connections.empty());
    helper_.channel().send('w');
    ASSERT_TRUE(progress_until({&port_}, [&] { return outcome_.done(); }));
    EXPECT_EQ(outcome_.status, Status::ok);
    EXPECT_EQ(pattern_mismatch(local_.data(), kBytes, 7), kBytes);
    EXPECT_EQ(log_.count(""), 0u);
}

TEST_F(PortHelper, ThatDiesWithItsPieceFailsTheGet) {
    helper_.kill_hard();
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(progress_until({&port_}, [&] { return outcome_.done(); }));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(outcome_.status, Status::peer_failed);
    EXPECT_TRUE(progress_until({&port_}, [&] { return port_.failed_connections.size() == 1; }));
}

TEST_F(PortHelper, ThatHangsDoesNotHoldUpACancelForEver) {
    EXPECT_LT(time_of_cancel(), std::chrono::seconds(10));
    EXPECT_EQ(log_.count("does not end a copy"), 1u);
    EXPECT_EQ(outcome_.calls, 0u);
}

TEST_F(PortHelper, ThatHangsWithSeveralTransfersHoldsUpACancelOnce) {
    for (int i = 0; i < 5; ++i) {
        begin_claimed_get();
    }
    EXPECT_LT(time_of_cancel(), std::chrono::milliseconds(3500));
    EXPECT_EQ(log_.count("does not end a copy"), 1u);
}

/** What it holds later is another copy. */
TEST_F(PortHelper, ThatHungOnceIsWaitedForAgain) {
    time_of_cancel();
    const SharedUse use = begin_claimed_get();
    std::atomic<bool> written{false};
    std::thread helper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        written = true;
        port_->shared_transfer(use.index).finish(use.id, true);
    });
    EXPECT_LT(time_of_cancel(), std::chrono::milliseconds(1500));
    EXPECT_TRUE(written);
    helper.join();
}

/** What it still says of the use that has ended does not count for the next one. */
TEST_F(PortHelper, ThatHangsKeepsNoTransferFromOthers) {
    EXPECT_LT(time_of_cancel(), std::chrono::seconds(10));
    const SharedUse use = port_->take_shared_transfer();
    EXPECT_EQ(use.index, 0u);
    port_->shared_transfer(use.index).open(use.id, 1);
    helper_.channel().send('w');
    helper_.channel().send('e');
    EXPECT_EQ(helper_.reap(), 0);
    EXPECT_EQ(port_->shared_transfer(use.index).helper(use.id, 1), SharedTransfer::Helper::busy);
}

}  // namespace
}  // namespace gpushm
