// SPDX-License-Identifier: BSD-3-Clause
// Short messages that the receiver copies itself if it comes early (MessageOffer).
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include "core/copy/copy_any.hpp"
#include "core/copy/row_views.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/transport/claimed_read.hpp"
#include "core/transport/message_offer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 2000;
constexpr StridedRows kRows = {0, 8, kBytes / 8, 24};  // at an address

/** What the senders of these tests do while they wait. */
std::function<void()> while_waiting = [] {};

std::unique_ptr<MessageOffer> make_offer(const StridedRows &rows, const MemoryInfo &info) {
    return MessageOffer::create(rows, info, [] { while_waiting(); });
}

/** An offered message whose key the receiver has. */
class Offered {
public:
    Offered(TestPort &sender, const StridedRows &rows)
        : offer_(make_offer(rows, query_memory(reinterpret_cast<const void *>(rows.address)))),
          registration_(offer_->block(), rows.bytes()) {
        const std::optional<OfferUse> use =
            MessageOffer::open(offer_->block(), rows.bytes(), &sender->offer_places());
        EXPECT_TRUE(use && use->exists());
        key_ = registration_.at();
        key_.buffer = make_buffer_key(query_memory(reinterpret_cast<const void *>(rows.address)));
        key_.rows = rows;
        key_.offer = *use;
    }

    MessageOffer &operator*() { return *offer_; }
    const RemoteMemory &key() const { return key_; }
    void end() { offer_.reset(); }

private:
    std::unique_ptr<MessageOffer> offer_;
    Registration registration_;
    RemoteMemory key_;
};

class PortGpuOffer : public GpuTest {
protected:
    ~PortGpuOffer() override {
        while_waiting = [] {};
        receiver_.destroy();
        sender_.destroy();
    }

    StridedRows row() const {
        return {reinterpret_cast<uint64_t>(source_.data()), kBytes, 1, kBytes};
    }
    StridedRows rows() const {
        StridedRows rows = kRows;
        rows.address = reinterpret_cast<uint64_t>(source_.data());
        return rows;
    }
    /** What a message of these rows of source_ has. */
    std::vector<unsigned char> contents(const StridedRows &rows) const {
        const std::vector<unsigned char> memory = read(source_, kRows.extent());
        std::vector<unsigned char> bytes;
        for (size_t i = 0; i < rows.count; ++i) {
            const auto begin = memory.begin() + static_cast<ptrdiff_t>(i * rows.pitch);
            bytes.insert(bytes.end(), begin, begin + static_cast<ptrdiff_t>(rows.length));
        }
        return bytes;
    }
    void begin_get(const Buffer &target, const RemoteMemory &key, const void *owner = nullptr) {
        ASSERT_EQ(connection_.get(target.data(), kBytes, key, owner, outcome_.completion()),
                  Status::in_progress);
    }
    Status end_get() {
        EXPECT_TRUE(progress_until({&receiver_, &sender_}, [&] { return outcome_.done(); }));
        return outcome_.status;
    }

    TestPort receiver_{kMappingPort};
    TestPort sender_{kMappingPort};
    Connection &connection_ = receiver_.connection(sender_);
    Buffer source_{MemoryKind::device, kRows.extent()};
    Outcome outcome_;
};

TEST_F(PortGpuOffer, AGpuThatComesEarlyCopiesItself) {
    for (const StridedRows &message : {row(), rows()}) {
        Buffer target(MemoryKind::device, kBytes);
        source_.fill(message.count);
        target.fill(99);
        const std::vector<unsigned char> expected = contents(message);
        Offered offered(sender_, message);
        outcome_ = Outcome();
        begin_get(target, offered.key());
        EXPECT_FALSE((*offered).detach());
        EXPECT_EQ(end_get(), Status::ok);
        EXPECT_EQ(read(target, kBytes), expected);
    }
}

TEST_F(PortGpuOffer, WhoeverComesLateGetsWhatWasSent) {
    for (const MemoryKind kind : kAllKinds) {
        for (const StridedRows &message : {row(), rows()}) {
            SCOPED_TRACE(std::string(memory_kind_name(kind)) + " " + std::to_string(message.count));
            Buffer target(kind, kBytes);
            source_.fill(message.count);
            target.fill(99);
            const std::vector<unsigned char> expected = contents(message);
            Offered offered(sender_, message);
            EXPECT_TRUE((*offered).detach());
            source_.fill(98);  // by the program
            outcome_ = Outcome();
            begin_get(target, offered.key());
            EXPECT_EQ(end_get(), Status::ok);
            EXPECT_EQ(read(target, kBytes), expected);
        }
    }
}

TEST_F(PortGpuOffer, ItsSenderReceivesWhileItWaits) {
    Buffer target(MemoryKind::device, kBytes);
    source_.fill(5);
    target.fill(99);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    int times = 0;
    while_waiting = [&] {
        if (++times == 2) {  // as a process does that sends at the same time
            begin_get(target, offered.key());
        }
        receiver_->progress();
    };
    EXPECT_FALSE((*offered).detach());
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_TRUE((*offered).is_read());
    EXPECT_EQ(read(target, kBytes), expected);
}

/** Of messages that are claimed and neither read nor left to their senders. */
unsigned claimed_now() {
    const ClaimedRead::Totals totals = ClaimedRead::totals();
    return totals.begun - totals.ended;
}

TEST_F(PortGpuOffer, ReadsOfWhatIsClaimedAreCounted) {
    Buffer target(MemoryKind::device, kBytes);
    const unsigned begun = ClaimedRead::totals().begun;
    Offered read(sender_, row());
    begin_get(target, read.key());
    EXPECT_EQ(claimed_now(), 1U);
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_EQ(claimed_now(), 0U);

    Offered late(sender_, row());
    EXPECT_TRUE((*late).detach());
    outcome_ = Outcome();
    begin_get(target, late.key());
    EXPECT_EQ(claimed_now(), 0U);
    EXPECT_EQ(end_get(), Status::ok);

    Offered cancelled(sender_, row());
    outcome_ = Outcome();
    const char owner = 0;
    begin_get(target, cancelled.key(), &owner);
    EXPECT_EQ(claimed_now(), 1U);
    connection_.cancel(&owner);
    EXPECT_EQ(claimed_now(), 0U);
    EXPECT_EQ(ClaimedRead::totals().begun, begun + 2);
}

// UCP puts the block to a receiver that makes no progress any more.
TEST_F(PortGpuOffer, ACopyOfTheBlockThatBeginsMeanwhileDoesNotHoldUpItsSender) {
    source_.fill(5);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    std::optional<RowViews::Source> told;
    while_waiting = [&] { told = RowViews::instance().source((*offered).block(), kBytes); };
    EXPECT_TRUE((*offered).detach());
    EXPECT_FALSE(told);
    source_.fill(98);  // by the program
    std::vector<unsigned char> block(kBytes);
    EXPECT_EQ(copy_any(block.data(), (*offered).block(), kBytes), Status::ok);
    EXPECT_EQ(block, expected);
}

TEST_F(PortGpuOffer, AHostWaitsForTheCopyOfTheSender) {
    Buffer target(MemoryKind::host, kBytes);
    source_.fill(1);
    target.fill(99);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    begin_get(target, offered.key());
    for (int i = 0; i < 100; ++i) {
        receiver_->progress();
    }
    EXPECT_FALSE(outcome_.done());
    EXPECT_TRUE((*offered).detach());
    source_.fill(98);
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_EQ(read(target, kBytes), expected);
}

TEST_F(PortGpuOffer, AGetThatIsCancelledWaitsForNothing) {
    Buffer target(MemoryKind::host, kBytes);
    target.fill(99);
    Offered offered(sender_, row());
    begin_get(target, offered.key());
    std::vector<Completion> ended;
    connection_.cancel(nullptr, &ended);
    EXPECT_EQ(ended.size(), 1u);
    EXPECT_TRUE((*offered).detach());
    settle({&receiver_, &sender_});
    EXPECT_FALSE(outcome_.done());
    EXPECT_EQ(target.check(0, 0, 0, 99), "");
}

TEST_F(PortGpuOffer, TheBlockHoldsTheMessageToo) {
    Buffer copy(MemoryKind::host, kBytes);
    source_.fill(1);
    const std::vector<unsigned char> expected = contents(rows());
    Offered offered(sender_, rows());
    EXPECT_TRUE((*offered).detach());
    source_.fill(98);
    // As a copy of this process reads it, or one for a peer whose key names no rows.
    CopyEngine engine;
    const MemoryInfo info = query_memory((*offered).block());
    ASSERT_EQ(engine.copy({copy.data(), (*offered).block(), kBytes, info, CopyDirection::from_gpu}),
              Status::ok);
    EXPECT_EQ(read(copy, kBytes), expected);
}

TEST_F(PortGpuOffer, WithoutAKeyTheBlockIsFilled) {
    Buffer target(MemoryKind::device, kBytes);
    source_.fill(1);
    const std::vector<unsigned char> expected = contents(row());
    const std::unique_ptr<MessageOffer> offer = make_offer(row(), query_memory(source_.data()));
    EXPECT_TRUE(offer->detach());
    source_.fill(98);
    const Registration registration(offer->block(), kBytes);
    begin_get(target, registration.named());
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_EQ(read(target, kBytes), expected);
}

// UCP sends the first message of an endpoint when both sides are connected.
TEST_F(PortGpuOffer, IsNotOfferedWhenTheProgramGoesOn) {
    source_.fill(1);
    const std::unique_ptr<MessageOffer> offer = make_offer(row(), query_memory(source_.data()));
    EXPECT_TRUE(offer->detach());
    const std::optional<OfferUse> use =
        MessageOffer::open(offer->block(), kBytes, &sender_->offer_places());
    ASSERT_TRUE(use.has_value());
    EXPECT_FALSE(use->exists());
}

TEST_F(PortGpuOffer, AKeyThatCannotOfferItNamesNoRows) {
    source_.fill(1);
    const std::unique_ptr<MessageOffer> offer = make_offer(row(), query_memory(source_.data()));
    const std::optional<OfferUse> use = MessageOffer::open(offer->block(), kBytes, nullptr);
    ASSERT_TRUE(use.has_value());
    EXPECT_FALSE(use->exists());
    EXPECT_FALSE(MessageOffer::open(source_.data(), kBytes, nullptr).has_value());
}

// UCP may send the block itself, by copies that this process makes: the rows are read then.
TEST_F(PortGpuOffer, ACopyFromTheRowsIsWaitedFor) {
    const std::unique_ptr<MessageOffer> offer = make_offer(row(), query_memory(source_.data()));
    EXPECT_TRUE(RowViews::instance().source(offer->block(), kBytes).has_value());
    EXPECT_FALSE(offer->detach());
    Offered offered(sender_, row());
    auto reading = RowViews::instance().source((*offered).block(), kBytes);
    EXPECT_TRUE(reading.has_value());
    EXPECT_FALSE((*offered).detach());
    Offered other(sender_, row());
    reading = RowViews::instance().source((*other).block(), kBytes);
    reading.reset();
    EXPECT_TRUE((*other).detach());
}

TEST_F(PortGpuOffer, ThereAreAsManyAsPlaces) {
    std::vector<std::unique_ptr<Offered>> offers;
    for (uint32_t i = 0; i < kOfferedMessages; ++i) {
        offers.push_back(std::make_unique<Offered>(sender_, row()));
        EXPECT_TRUE((**offers.back()).detach());
    }
    EXPECT_EQ(make_offer(row(), query_memory(source_.data())), nullptr);
    offers.pop_back();
    const Offered next(sender_, row());
    for (const auto &offer : offers) {
        EXPECT_FALSE(next.key().offer.index == offer->key().offer.index);
    }
}

TEST_F(PortGpuOffer, AnOfferThatHasEndedGivesNothing) {
    Buffer target(MemoryKind::device, kBytes);
    target.fill(99);
    source_.fill(2);
    Offered offered(sender_, row());
    EXPECT_TRUE((*offered).detach());
    offered.end();
    source_.fill(3);
    Offered other(sender_, row());  // in the same place
    EXPECT_EQ(other.key().offer.index, offered.key().offer.index);
    EXPECT_TRUE((*other).detach());
    begin_get(target, offered.key());
    EXPECT_EQ(end_get(), Status::gpu_error);
    EXPECT_EQ(target.check(0, 0, 0, 99), "");
}

// A receiver that has begun to copy and leaves MPI does not hold the sender up.
TEST_F(PortGpuOffer, ItsSenderTakesItBack) {
    Buffer target(MemoryKind::device, kBytes);
    for (const StridedRows &message : {row(), rows()}) {
        source_.fill(message.count);
        target.fill(99);
        const std::vector<unsigned char> expected = contents(message);
        Offered offered(sender_, message);
        EXPECT_FALSE((*offered).take_back());  // it is not claimed
        outcome_ = Outcome();
        begin_get(target, offered.key());
        EXPECT_FALSE((*offered).detach());
        EXPECT_FALSE((*offered).is_read());
        EXPECT_TRUE((*offered).take_back());
        source_.fill(98);  // by the program
        EXPECT_EQ(end_get(), Status::ok);
        EXPECT_EQ(read(target, kBytes), expected);
        EXPECT_FALSE((*offered).is_read());
    }
}

TEST_F(PortGpuOffer, ItsSenderKnowsWhenItIsRead) {
    Buffer target(MemoryKind::device, kBytes);
    Offered offered(sender_, row());
    begin_get(target, offered.key());
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_FALSE((*offered).detach());
    EXPECT_TRUE((*offered).is_read());
    EXPECT_FALSE((*offered).take_back());
}

// The sender's process reads the rows itself, so they must stay.
TEST_F(PortGpuOffer, ThatCannotBeCopiedIsGotFromTheSender) {
    Buffer target(MemoryKind::host, kBytes);
    source_.fill(1);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    begin_get(target, offered.key());
    const auto reading = RowViews::instance().source((*offered).block(), kBytes);
    EXPECT_FALSE((*offered).detach());
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_EQ(read(target, kBytes), expected);
}

TEST_F(PortGpuOffer, AFailingGpuIsNoMessage) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    Buffer target(MemoryKind::host, kBytes);
    source_.fill(1);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    begin_get(target, offered.key());
    set_simulation("SIMCUDA_FAIL",
                   "cuMemcpyAsync:1:700,cuMemcpyAsync:1:700,cuMemcpyAsync:1:700,"
                   "cuMemcpyAsync:1:700,cuMemcpy:1:700");
    const bool is_free = (*offered).detach();
    set_simulation("SIMCUDA_FAIL", "");
    source_.fill(is_free ? 98 : 1);
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_EQ(read(target, kBytes), expected);
}

// Keys are packed by UCP's threads, and the thread of MPI_Send ends the message.
TEST_F(PortGpuOffer, EachHasAPlaceForItself) {
    const MemoryInfo info = query_memory(source_.data());
    std::array<std::atomic<unsigned>, kOfferedMessages> users{};
    std::atomic<unsigned> shared{0};
    std::atomic<unsigned> without{0};
    const auto send = [&] {
        for (int i = 0; i < (kSanitized ? 500 : 20000); ++i) {
            const auto offer = make_offer(row(), info);
            const auto use = MessageOffer::open(offer->block(), kBytes, &sender_->offer_places());
            if (!use || !use->exists()) {
                ++without;
                continue;
            }
            shared += users[use->index]++ != 0 ? 1 : 0;
            --users[use->index];
        }
    };
    std::thread other([&] {
        cuda_.ctx_push_current(context_);
        send();
    });
    send();
    other.join();
    EXPECT_EQ(shared, 0u);
    EXPECT_EQ(without, 0u);
}

// The block ends with its context, and the program may have other memory there.
TEST_F(PortGpuOffer, AResetContextTakesTheBlockWithIt) {
    const CUcontext other = make_context();
    ASSERT_NE(other, nullptr);
    cuda_.ctx_push_current(other);
    std::unique_ptr<MessageOffer> offer;
    {
        Buffer source(MemoryKind::device, kBytes);
        source.fill(1);
        offer = make_offer({reinterpret_cast<uint64_t>(source.data()), kBytes, 1, kBytes},
                           query_memory(source.data()));
        (void)MessageOffer::open(offer->block(), kBytes, &sender_->offer_places());
        EXPECT_TRUE(offer->detach());
        source.forget();
    }
    CUcontext popped = nullptr;
    cuda_.ctx_pop_current(&popped);
    destroy_context(other);
    constexpr size_t kPart = 64u << 10;
    std::vector<std::unique_ptr<Buffer>> buffers;
    bool is_there = false;
    for (int i = 0; i < 200 && !is_there; ++i) {
        buffers.push_back(std::make_unique<Buffer>(MemoryKind::device, kPart));
        const auto *const begin = buffers.back()->data();
        const auto *const block = static_cast<const unsigned char *>(offer->block());
        is_there = begin <= block && block < begin + kPart;
    }
    if (!is_there) {
        GTEST_SKIP() << "the address was not used again";
    }
    const Buffer &buffer = *buffers.back();
    buffers.back()->fill(42);
    EXPECT_FALSE(MessageOffer::open(buffer.data(), kPart, nullptr).has_value());
    Buffer copy(MemoryKind::host, kPart);
    CopyEngine engine;
    ASSERT_EQ(engine.copy({copy.data(), buffer.data(), kPart, query_memory(buffer.data()),
                           CopyDirection::from_gpu}),
              Status::ok);
    EXPECT_EQ(copy.check(0, kPart, 42, 42), "");
    EXPECT_EQ(buffer.check(0, kPart, 42, 42), "");
}

// UCP may get a message in parts.
TEST_F(PortGpuOffer, APartIsNotClaimed) {
    Buffer target(MemoryKind::device, kBytes);
    source_.fill(1);
    target.fill(99);
    std::vector<unsigned char> expected = read(target, kBytes);
    const std::vector<unsigned char> message = contents(row());
    std::copy_n(message.begin(), kBytes / 2, expected.begin());
    Offered offered(sender_, row());
    ASSERT_EQ(
        connection_.get(target.data(), kBytes / 2, offered.key(), nullptr, outcome_.completion()),
        Status::in_progress);
    EXPECT_TRUE((*offered).detach());
    source_.fill(98);
    EXPECT_EQ(end_get(), Status::ok);
    EXPECT_EQ(read(target, kBytes), expected);
}

// A way that needs the sender is not taken.
TEST_F(PortGpuOffer, WithoutAMappingItIsNotClaimed) {
    Buffer target(MemoryKind::device, kBytes);
    TestPort receiver(kSmallPort);
    source_.fill(1);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    ASSERT_EQ(receiver.connection(sender_).get(target.data(), kBytes, offered.key(), nullptr,
                                               outcome_.completion()),
              Status::in_progress);
    EXPECT_TRUE((*offered).detach());
    source_.fill(98);
    EXPECT_TRUE(progress_until({&receiver}, [&] { return outcome_.done(); }));
    EXPECT_EQ(outcome_.status, Status::ok);
    EXPECT_EQ(read(target, kBytes), expected);
}

// The copy of a claimed message fails.
TEST_F(PortGpuOffer, ThatCannotBeReadIsGotFromTheSender) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    Buffer target(MemoryKind::device, kBytes);
    source_.fill(1);
    const std::vector<unsigned char> expected = contents(row());
    Offered offered(sender_, row());
    set_simulation("SIMCUDA_FAIL", "cuMemcpyAsync:1:700,cuLaunchKernel:1:700");
    begin_get(target, offered.key());
    EXPECT_FALSE((*offered).detach());
    EXPECT_EQ(end_get(), Status::ok);
    set_simulation("SIMCUDA_FAIL", "");
    EXPECT_EQ(read(target, kBytes), expected);
}

TEST_F(PortGpuOffer, OutlivesThePort) {
    auto offered = std::make_unique<Offered>(sender_, row());
    EXPECT_TRUE((**offered).detach());
    receiver_.destroy();
    sender_.destroy();
    offered.reset();
}

// ---------------------------------------------------------------- between processes

struct OfferOfAPeer {
    MailboxAddress mailbox;
    RemoteMemory key;
};

/** Offers a message and waits to be told to let it go. */
int offer_and_wait(const Channel &channel) {
    CHECK(enter_primary_context(0));
    Buffer source(MemoryKind::device, kBytes);
    source.fill(7);
    TestPort port(kMappingPort);
    Offered offered(port, {reinterpret_cast<uint64_t>(source.data()), kBytes, 1, kBytes});
    channel.send(OfferOfAPeer{port->address(), offered.key()});
    bool lets_go = false;
    CHECK(channel.receive(&lets_go));
    CHECK(lets_go && (*offered).detach());
    source.fill(8);
    channel.send(true);
    CHECK(channel.receive(&lets_go));
    return 0;
}

struct Receiver {
    explicit Receiver(const Child &child, const OfferOfAPeer &peer)
        : connection(port.connection(peer.mailbox)) {
        (void)child;
        target.fill(99);
        EXPECT_EQ(connection.get(target.data(), kBytes, peer.key, nullptr, outcome.completion()),
                  Status::in_progress);
    }
    Buffer target{MemoryKind::host, kBytes};
    TestPort port{kMappingPort};
    Connection &connection;
    Outcome outcome;
};

FreshProcess death_of_the_sender("death_of_the_sender", [] {
    Child child(offer_and_wait);
    OfferOfAPeer peer;
    CHECK(child.channel().receive(&peer));
    CHECK(enter_primary_context(0));
    Receiver receiver(child, peer);
    child.kill_hard();
    CHECK(progress_until({&receiver.port}, [&] { return receiver.outcome.done(); }));
    CHECK(receiver.outcome.status == Status::peer_failed);
    CHECK(receiver.target.check(0, 0, 0, 99).empty());
    return 0;
});

TEST(PortGpuOfferOfAPeer, EndsWithIt) {
    EXPECT_EQ(death_of_the_sender.run(), 0);
}

// The sender does nothing with its port behind detach().
FreshProcess sender_that_computes("sender_that_computes", [] {
    Child child(offer_and_wait);
    OfferOfAPeer peer;
    CHECK(child.channel().receive(&peer));
    CHECK(enter_primary_context(0));
    Receiver receiver(child, peer);
    child.channel().send(true);
    bool gone_on = false;
    CHECK(child.channel().receive(&gone_on));
    CHECK(progress_until({&receiver.port}, [&] { return receiver.outcome.done(); }));
    CHECK(receiver.outcome.status == Status::ok);
    CHECK(receiver.target.check(0, kBytes, 7, 99).empty());
    child.channel().send(true);
    return child.reap();
});

TEST(PortGpuOfferOfAPeer, ComesWithoutItsHelp) {
    EXPECT_EQ(sender_that_computes.run(), 0);
}

}  // namespace
}  // namespace gpushm
