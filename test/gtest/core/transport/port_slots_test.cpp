// SPDX-License-Identifier: BSD-3-Clause
// Gets between hosts whose bytes come in slots of the reader's mailbox (HostReads), as every
// first one of its length is tried after sixteen by CMA (HostTransferWays).
#include "test/gtest/core/transport/port_support.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = (1 << 20) + 4096;
constexpr unsigned kAlways = ~0u;
constexpr unsigned kGetsBeforeTrial = 16;
constexpr unsigned kRoundsBeforeTrial = 4;

/** Pages that may be taken away. */
class Pages {
public:
    Pages()
        : data_(static_cast<unsigned char *>(
              mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
    ~Pages() { munmap(data_, kBytes); }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;
    unsigned char *data() { return data_; }
    /** Whoever touches them dies. */
    void take_away() { mprotect(data_, kBytes, PROT_NONE); }

private:
    unsigned char *data_;
};

class PortSlots : public testing::Test {
protected:
    PortSlots()
        : registration_(std::make_unique<Registration>(source_.data(), kBytes)), local_(kBytes) {}

    RemoteMemory remote(size_t offset = 0) const {
        RemoteMemory memory = registration_->at(offset);
        memory.buffer.owner = process_cookie().low;
        return memory;
    }
    Status get(size_t length, Outcome &outcome) {
        fill_pattern(source_.data(), length, ++seed_);
        memset(local_.data(), 0xee, kBytes);
        a_->progress();  // those of one call are taken together
        return connection().get(local_.data(), length, remote(), this, outcome.completion());
    }
    void expect_data(size_t length) const {
        EXPECT_EQ(pattern_mismatch(local_.data(), length, seed_), length);
        EXPECT_EQ(local_[length], 0xee);
    }
    void expect_get(size_t length) {
        Outcome outcome;
        const Status status = get(length, outcome);
        if (status == Status::in_progress) {
            ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
            EXPECT_EQ(outcome.status, Status::ok);
        } else {
            EXPECT_EQ(status, Status::ok);
        }
        expect_data(length);
    }
    /** All before the first that comes in slots. */
    void use_cma(size_t length) {
        for (unsigned i = 0; i < kGetsBeforeTrial; ++i) {
            expect_get(length);
        }
    }
    /** That one. */
    void start(size_t length, Outcome &outcome) {
        use_cma(length);
        ASSERT_EQ(get(length, outcome), Status::in_progress) << length;
    }
    /** The owner goes on when nobody waits for its answer, and the memory is not there any more. */
    void expect_nothing_later() {
        memset(local_.data(), 0x11, kBytes);
        source_.take_away();
        settle({&a_, &b_});
        EXPECT_EQ(local_, std::vector<unsigned char>(kBytes, 0x11));
    }
    Connection &connection() { return a_.connection(b_); }

    LogCapture log_;
    TestPort a_{kCmaPort};
    TestPort b_{kCmaPort};
    Pages source_;
    std::unique_ptr<Registration> registration_;
    std::vector<unsigned char> local_;
    uint64_t seed_ = 0;
};

TEST_F(PortSlots, BringAllBytes) {
    for (const size_t length : {size_t{16 << 10}, size_t{40001}, size_t{64 << 10},
                                size_t{128 << 10} + 1, size_t{511 << 10}}) {
        Outcome outcome;
        start(length, outcome);
        const RefusedCopies copies(kAlways, kAlways);
        settle({&b_});  // all pieces, or on a busy machine the reader might not wait for them
        ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        expect_data(length);
        EXPECT_EQ(copies.reads() + copies.writes(), 0u) << length << " bytes by CMA";
    }
    use_cma(1 << 20);
    expect_get(1 << 20);
    EXPECT_EQ(log_.count("memory corruption"), 0u);
}

TEST_F(PortSlots, SeveralAtATime) {
    constexpr size_t kLength = 48 << 10;
    constexpr size_t kCount = 4;  // of four pieces
    for (unsigned round = 0; round <= kRoundsBeforeTrial; ++round) {
        const RefusedCopies copies(kAlways, kAlways);
        fill_pattern(source_.data(), kCount * kLength, ++seed_);
        memset(local_.data(), 0xee, kBytes);
        Outcome outcomes[kCount + 1];
        // One that takes time, or nothing is under way together.
        ASSERT_EQ(connection().get(local_.data(), 64 << 10, remote(), this,
                                   outcomes[kCount].completion()),
                  Status::in_progress);
        for (size_t i = 0; i < kCount; ++i) {
            connection().get(local_.data() + i * kLength, kLength, remote(i * kLength), this,
                             outcomes[i].completion());
        }
        settle({&b_});
        ASSERT_TRUE(progress_until({&a_}, [&] { return !connection().busy(); }));
        a_->progress();
        EXPECT_EQ(pattern_mismatch(local_.data(), kCount * kLength, seed_), kCount * kLength);
        EXPECT_EQ(local_[kCount * kLength], 0xee);
        if (round == kRoundsBeforeTrial) {
            EXPECT_LE(copies.reads(), 2u) << "but for the one before them";
        } else {
            EXPECT_GE(copies.reads(), kCount);
        }
    }
}

TEST_F(PortSlots, AnOwnerThatIsBusyIsNotWaitedFor) {
    Outcome outcome;
    start(256 << 10, outcome);
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::ok);
    expect_data(256 << 10);
    expect_nothing_later();
    EXPECT_EQ(log_.count("memory corruption"), 0u);
}

TEST_F(PortSlots, AnOwnerThatStopsInTheMiddleIsNotWaitedFor) {
    Outcome outcome;
    start(1 << 20, outcome);
    ASSERT_NE(b_->progress(), 0u);
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::ok);
    expect_data(1 << 20);
    expect_nothing_later();
}

TEST_F(PortSlots, WhatIsCancelledIsNotWritten) {
    Outcome outcome;
    start(1 << 20, outcome);
    b_->progress();
    a_->progress();
    connection().cancel(this);
    expect_nothing_later();
    EXPECT_EQ(outcome.calls, 0u);
}

TEST_F(PortSlots, MemoryThatIsNotSharedAnyMoreIsAnError) {
    Outcome outcome;
    start(256 << 10, outcome);
    registration_.reset();
    source_.take_away();
    ASSERT_NE(b_->progress(), 0u);
    ASSERT_TRUE(progress_until({&b_, &a_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::gpu_error);
}

TEST_F(PortSlots, FewAreOnTheirWayAtATime) {
    Outcome outcome;
    start(1 << 20, outcome);
    const uint64_t before = a_->reserved_tickets();
    for (int i = 0; i < 1000; ++i) {
        b_->progress();
    }
    EXPECT_EQ(a_->reserved_tickets(), before + 16) << "there are 32 pieces";
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    expect_data(1 << 20);
}

TEST_F(PortSlots, TheyLeaveHalfOfAMailboxToOthers) {
    Outcome outcome;
    start(1 << 20, outcome);
    TestPort c{kCmaPort};
    Connection &other = c.connection(a_);
    const uint64_t before = a_->reserved_tickets();
    for (unsigned i = 0; i < 24; ++i) {
        ASSERT_EQ(other.am_short(1, 0, "", 0), Status::ok);
    }
    // Of others' messages the owner knows when it has sent one itself.
    for (int i = 0; i < 1000; ++i) {
        b_->progress();
    }
    EXPECT_LE(a_->reserved_tickets(), before + 24 + 9) << "of 64 cells";
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    expect_data(1 << 20);
}

TEST_F(PortSlots, MessagesOfOthersThatWereReceivedAreNotInTheWay) {
    TestPort c{kCmaPort};
    Outcome outcome;
    use_cma(64 << 10);
    for (unsigned i = 0; i < 200; ++i) {
        ASSERT_EQ(send_when_possible(c, a_, [&] { return c.connection(a_).am_short(1, 0, "", 0); }),
                  Status::ok);
        a_->progress();
    }
    settle({&a_, &b_, &c});
    ASSERT_EQ(get(64 << 10, outcome), Status::in_progress);
    const RefusedCopies copies(kAlways, kAlways);
    settle({&b_});
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
    EXPECT_EQ(copies.reads() + copies.writes(), 0u);
    expect_data(64 << 10);
}

TEST_F(PortSlots, AHelperDoesNotWaitForAReaderThatTakesNothingOut) {
    Outcome outcome;
    start(1 << 20, outcome);
    ASSERT_TRUE(progress_until({&b_}, [&] { return !b_.connection(a_).busy(); }));
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::ok);
    expect_data(1 << 20);
}

TEST_F(PortSlots, WindowsOfLittleAreMeasured) {
    constexpr size_t kLength = 32 << 10;
    constexpr size_t kCount = 8;
    // CMA takes longer here; each get by it is over when it returns, so that nothing is ever
    // under way together.
    RefusedCopies copies(kAlways, kAlways);
    copies.slow_down(std::chrono::microseconds(200));
    unsigned reads = 0;
    for (unsigned round = 0; round < 100; ++round) {
        const unsigned before = copies.reads();
        settle({&a_, &b_});
        fill_pattern(source_.data(), kCount * kLength, ++seed_);
        Outcome outcomes[kCount];
        for (size_t i = 0; i < kCount; ++i) {
            connection().get(local_.data() + i * kLength, kLength, remote(i * kLength), this,
                             outcomes[i].completion());
        }
        while (connection().busy()) {
            a_->progress();
            b_->progress();
        }
        EXPECT_EQ(pattern_mismatch(local_.data(), kCount * kLength, seed_), kCount * kLength);
        reads += copies.reads() - before == 0 ? 1 : 0;
    }
    EXPECT_GE(reads, 1u) << "all of a window by slots, once at least";
}

TEST_F(PortSlots, MemoryOfAnotherKindIsNotRead) {
    Outcome outcome;
    start(64 << 10, outcome);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    // Not registered, and beyond what is mapped.
    HelpRequest request = {};
    request.address = 4096;
    request.length = 64 << 10;
    request.registration = remote().registration;
    request.piece_bytes = 16 << 10;
    request.by_slots = 1;
    request.shared = a_->take_shared_transfer();
    a_->shared_transfer(request.shared.index).open(request.shared.id, 4);
    b_.connection(a_).helper().receive_request(request);
    settle({&b_, &a_});
    EXPECT_EQ(a_->shared_transfer(request.shared.index).helper(request.shared.id, 1),
              SharedTransfer::Helper::failed);
    a_->release_shared_transfer(request.shared.index);
}

TEST_F(PortSlots, PiecesThatNobodyAskedForAreDropped) {
    const unsigned char byte = 1;
    for (const uint32_t id : {0u, 1u, 17u, UINT32_MAX}) {
        connection().transfers().host_reads().receive_piece({{0, id}, 0}, &byte, 1);
    }
    Outcome outcome;
    start(256 << 10, outcome);
    std::vector<unsigned char> wrong(kSlotBytes, 0x22);
    for (uint32_t id = 0; id < 64; ++id) {
        connection().transfers().host_reads().receive_piece({{0, id}, 8}, wrong.data(),
                                                            32 << 10);  // there are 8
        connection().transfers().host_reads().receive_piece({{0, id}, UINT32_MAX}, wrong.data(),
                                                            32 << 10);
        connection().transfers().host_reads().receive_piece({{0, id}, 0}, wrong.data(),
                                                            (32 << 10) - 1);
        connection().transfers().host_reads().receive_piece({{0, id}, 0}, wrong.data(), kSlotBytes);
    }
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    expect_data(256 << 10);
}

// ---------------------------------------------------------------- an owner that dies

struct OwnerAddress {
    MailboxAddress mailbox;
    RemoteMemory memory;
};

/** A process that claims a piece of the first get that is to come in slots, and says so. */
int claim_only(const Channel &channel, const MailboxAddress &reader) {
    auto mailbox = MailboxReceiver::create(64, kSlotBytes);
    const ShownRegistrations shown(*mailbox);
    std::vector<unsigned char> memory(kBytes);
    const Registration registration(memory.data(), kBytes);
    RemoteMemory remote = registration.at();
    remote.buffer.owner = process_cookie().low;
    channel.send(OwnerAddress{mailbox->address(), remote});
    const char *why = "";
    auto sender = MailboxSender::attach(reader, mailbox->address(), &why);
    const Deadline deadline;
    HelpRequest request = {};
    while (request.by_slots == 0 && !deadline.passed()) {
        ReceivedCell cell;
        if (mailbox->receive(&cell)) {
            memcpy(&request, cell.payload, sizeof(request));
            mailbox->release();
        }
    }
    ReservedCell reserved;
    const bool claimed =
        sender->reserve(&reserved) &&
        sender->shared_transfer(request.shared.index).claim_last(request.shared.id).has_value();
    channel.send(claimed);
    char order;
    channel.receive(&order);
    return 0;
}

TEST(PortSlotsDeath, WithAPieceInHandFailsTheGet) {
    TestPort port(kCmaPort);
    Child owner(
        [own = port->address()](const Channel &channel) { return claim_only(channel, own); });
    OwnerAddress address;
    ASSERT_TRUE(owner.channel().receive(&address));
    Connection &connection = port.connection(address.mailbox);
    std::vector<unsigned char> local(kBytes);
    for (unsigned i = 0; i < kGetsBeforeTrial; ++i) {
        Outcome outcome;
        if (connection.get(local.data(), 64 << 10, address.memory, nullptr, outcome.completion()) ==
            Status::in_progress) {
            ASSERT_TRUE(progress_until({&port}, [&] { return outcome.done(); }));
        }
    }
    Outcome outcome;
    ASSERT_EQ(connection.get(local.data(), 64 << 10, address.memory, nullptr, outcome.completion()),
              Status::in_progress);
    bool claimed = false;
    ASSERT_TRUE(owner.channel().receive(&claimed) && claimed);
    owner.kill_hard();
    ASSERT_TRUE(progress_until({&port}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::peer_failed);
}

}  // namespace
}  // namespace gpushm
