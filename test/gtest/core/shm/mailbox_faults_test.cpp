// SPDX-License-Identifier: BSD-3-Clause
// Mailbox: dead senders, words that make no sense, peers that are not what they say.
#include "test/gtest/core/shm/mailbox_support.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <functional>
#include <memory>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr MailboxGeometry kGeometry = {8, 256};

/** A mailbox with a healthy sender and a view of its words, some laps after its creation. */
class MailboxFaults : public testing::Test {
protected:
    MailboxFaults()
        : mailbox_(std::move(*MailboxReceiver::create(kGeometry.cell_count, kGeometry.slot_bytes))),
          raw_(mailbox_, kGeometry),
          sender_(attach_sender(mailbox_.address())) {
        for (; sent_ < 21; ++sent_) {
            send_pattern(sender_, sent_, 8);
            expect_next(mailbox_, sent_, 8);
        }
    }

    void expect_works() {
        for (int i = 0; i < 20; ++i, ++sent_) {
            ASSERT_TRUE(send_pattern(sender_, sent_, 200)) << "the mailbox is stuck";
            expect_next(mailbox_, sent_, 200);
        }
    }

    void TearDown() override { reports_before_ += log_.count("broken message"); }

    static inline size_t reports_before_ = 0;  // in the tests before this one
    LogCapture log_;
    MailboxReceiver mailbox_;
    RawMailbox raw_;
    MailboxSender sender_;
    uint64_t sent_ = 0;  // the ticket of the next cell
};

/** A process that reserves the next cell and waits for its end. */
std::unique_ptr<Child> reserve_in_child(const MailboxAddress &address) {
    auto child = std::make_unique<Child>([address](const Channel &channel) {
        MailboxSender sender = attach_sender(address, 9);
        ReservedCell cell;
        const bool reserved = sender.reserve(&cell);
        channel.send(reserved);
        int publish;
        if (channel.receive(&publish)) {
            fill_pattern(cell.cell->payload, 8, 99);
            sender.publish(cell, CellKind::am_inline, 99 % 32, 8);
        }
        return 0;
    });
    bool reserved = false;
    EXPECT_TRUE(child->channel().receive(&reserved) && reserved);
    return child;
}

TEST_F(MailboxFaults, DeadSendersAreSkippedAndNobodyElseLosesAMessage) {
    std::vector<std::unique_ptr<Child>> children;
    ASSERT_TRUE(send_pattern(sender_, 1, 8));
    children.push_back(reserve_in_child(mailbox_.address()));
    ASSERT_TRUE(send_pattern(sender_, 2, 8));
    children.push_back(reserve_in_child(mailbox_.address()));
    children.push_back(reserve_in_child(mailbox_.address()));
    ASSERT_TRUE(send_pattern(sender_, 3, 200));

    EXPECT_FALSE(mailbox_.skip_dead_sender()) << "a published message is no dead sender";
    expect_next(mailbox_, 1, 8);
    ReceivedCell message;
    EXPECT_FALSE(mailbox_.receive(&message));
    EXPECT_FALSE(mailbox_.skip_dead_sender()) << "it lives";
    for (const auto &child : children) {
        child->kill_hard();  // and stays a zombie
    }
    EXPECT_FALSE(mailbox_.receive(&message));
    EXPECT_TRUE(mailbox_.skip_dead_sender());
    expect_next(mailbox_, 2, 8);
    EXPECT_TRUE(mailbox_.skip_dead_sender());
    children.back()->reap();
    EXPECT_TRUE(mailbox_.skip_dead_sender());
    EXPECT_FALSE(mailbox_.skip_dead_sender());
    expect_next(mailbox_, 3, 200);
    EXPECT_FALSE(mailbox_.skip_dead_sender()) << "empty";
    expect_works();
}

TEST_F(MailboxFaults, StoppedSenderIsWaitedFor) {
    const auto child = reserve_in_child(mailbox_.address());
    kill(child->pid(), SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child->pid()), &info, WSTOPPED), 0);
    child->channel().send(1);
    ASSERT_TRUE(send_pattern(sender_, 2, 8));
    ReceivedCell message;
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(mailbox_.receive(&message));
        EXPECT_FALSE(mailbox_.skip_dead_sender());
        EXPECT_FALSE(mailbox_.find_dead_sender());
    }
    kill(child->pid(), SIGCONT);
    child->reap();
    expect_next(mailbox_, 99, 8);
    expect_next(mailbox_, 2, 8);
    sent_ += 2;
    expect_works();
}

TEST_F(MailboxFaults, MessagePublishedJustBeforeTheDeathIsNotSkipped) {
    const auto child = reserve_in_child(mailbox_.address());
    // The owner has seen the reservation and is about to ask whether its holder lives.
    before_next_poll([&] {
        child->channel().send(1);
        child->await_death();
    });
    EXPECT_FALSE(mailbox_.skip_dead_sender());
    expect_next(mailbox_, 99, 8);
    expect_works();
}

TEST_F(MailboxFaults, ReservationOfWhatIsNoProcessIsSkipped) {
    // No record, PID 0, PID -1 (groups of processes to kill(2)), and numbers beyond a PID.
    for (const uint64_t owner : {uint64_t{0}, uint64_t{1}, uint64_t{0x1ffffffff}, ~uint64_t{0},
                                 uint64_t{1} << 63 | 1, uint64_t{0xfffffffd}}) {
        raw_.record(5).owner.store(owner);
        raw_.record(5).reserving.store(sent_ + 1);
        raw_.header().tail.store(tail_word(sent_ + 1));
        EXPECT_TRUE(mailbox_.skip_dead_sender()) << std::hex << owner;
        ++sent_;
        expect_works();
    }
}

TEST_F(MailboxFaults, LivingRivalForTheSameTicketIsWaitedFor) {
    const auto child = reserve_in_child(mailbox_.address());
    // As a sender shows it that has yet to learn that the child was quicker.
    MailboxSender rival = attach_sender(mailbox_.address(), 2);
    raw_.record(2).reserving.store(sent_ + 1);
    child->kill_hard();
    EXPECT_FALSE(mailbox_.skip_dead_sender()) << "who of them reserved it cannot be told";
    ASSERT_TRUE(send_pattern(rival, 7, 8));
    EXPECT_EQ(raw_.record(2).reserving.load(), 0u);
    EXPECT_TRUE(mailbox_.skip_dead_sender());
    expect_next(mailbox_, 7, 8);
    sent_ += 2;
    expect_works();
}

TEST_F(MailboxFaults, SenderThatFindsNoRoomHoldsUpNobody) {
    const auto child = reserve_in_child(mailbox_.address());
    for (uint32_t i = 1; i < kGeometry.cell_count; ++i) {
        ASSERT_TRUE(send_pattern(sender_, i, 8));
    }
    raw_.record(0).reserving.store(sent_ + 1);  // its last attempt, lost to the child
    EXPECT_FALSE(send_pattern(sender_, 99, 8));
    child->kill_hard();
    EXPECT_TRUE(mailbox_.skip_dead_sender());
    expect_next(mailbox_, 1, 8);
}

TEST_F(MailboxFaults, ReservationsOfARecordEndWithItsHolder) {
    const auto child = reserve_in_child(mailbox_.address());
    child->kill_hard();
    EXPECT_FALSE(mailbox_.find_dead_sender()) << "the first record is of this process";
    EXPECT_FALSE(mailbox_.find_dead_sender()) << "something is reserved";
    ASSERT_TRUE(mailbox_.skip_dead_sender());
    ++sent_;
    EXPECT_EQ(raw_.record(1).reserving.load(), sent_);
    EXPECT_FALSE(mailbox_.find_dead_sender());
    EXPECT_EQ(mailbox_.find_dead_sender(), std::optional<uint16_t>(1));
    mailbox_.free_sender(1);
    attach_sender(mailbox_.address());
    EXPECT_EQ(raw_.record(1).reserving.load(), 0u);
}

TEST_F(MailboxFaults, RecordIsNotWrittenByWhoHasClosed) {
    MailboxSender leaving = attach_sender(mailbox_.address(), 1);
    ReservedCell cell;
    ASSERT_TRUE(leaving.reserve(&cell));
    leaving.publish(cell, CellKind::close, 0, 0);
    EXPECT_EQ(raw_.record(1).reserving.load(), sent_ + 1)
        << "the owner may have freed it, and another may be about to reserve";
    ReceivedCell message;
    ASSERT_TRUE(mailbox_.receive(&message));
    mailbox_.release();
    ++sent_;
    // What is left there holds up nobody, though its process lives.
    const auto child = reserve_in_child(mailbox_.address());
    child->kill_hard();
    EXPECT_TRUE(mailbox_.skip_dead_sender());
    ++sent_;
    expect_works();
}

TEST_F(MailboxFaults, RecordOfADeadSenderStaysWhileItsMessageWaitsBehindAnother) {
    MailboxSender slow = attach_sender(mailbox_.address(), 1);
    ReservedCell cell;
    ASSERT_TRUE(slow.reserve(&cell));
    const MailboxAddress address = mailbox_.address();
    Child child([&](const Channel &) {
        MailboxSender sender = attach_sender(address, 2);
        return send_pattern(sender, 3, 8) ? 0 : 1;
    });
    EXPECT_EQ(child.reap(), 0);
    for (int i = 0; i < 6; ++i) {
        EXPECT_FALSE(mailbox_.find_dead_sender());
    }
    slow.publish(cell, CellKind::am_inline, 0, 0);
    ReceivedCell message;
    ASSERT_TRUE(mailbox_.receive(&message));
    mailbox_.release();
    expect_next(mailbox_, 3, 8);
    std::optional<uint16_t> dead;
    for (int i = 0; i < 3; ++i) {
        dead = dead ? dead : mailbox_.find_dead_sender();
    }
    EXPECT_EQ(dead, std::optional<uint16_t>(2));
}

TEST_F(MailboxFaults, BrokenStatesOfACellAreNoMessages) {
    for (const uint64_t state : {uint64_t{0}, uint64_t{1}, sent_ - 8, sent_ - 7, sent_, sent_ + 2,
                                 sent_ + 9, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}}) {
        for (const bool reserved : {false, true}) {
            Cell &cell = raw_.cell(sent_);
            cell.label.store({CellKind::am_inline, 0, 0, 8});
            cell.state.store(state == sent_ + 1 ? 0 : state);
            if (reserved) {
                raw_.header().tail.store(tail_word(sent_ + 1));
            }
            ReceivedCell message;
            EXPECT_TRUE(mailbox_.empty());
            ASSERT_FALSE(mailbox_.receive(&message)) << state;
            EXPECT_EQ(mailbox_.skip_dead_sender(), reserved) << "nobody is left to publish it";
            sent_ += reserved;
            expect_works();
        }
    }
}

TEST_F(MailboxFaults, BrokenTailIsAFullMailboxAndCostsNoMessage) {
    ASSERT_TRUE(send_pattern(sender_, 1, 8));
    ASSERT_TRUE(send_pattern(sender_, 2, 200));
    const uint64_t right = raw_.header().tail.load();
    EXPECT_EQ(right, tail_word(sent_ + 2));
    MailboxSender late = attach_sender(mailbox_.address(), 1);
    for (const uint64_t tail : {uint64_t{0}, tail_word(sent_ - 1), tail_word(sent_ + 9),
                                tail_word(sent_ + 1000), uint64_t{1} << 63, ~uint64_t{0}}) {
        for (const uint64_t bit : {0, 1}) {
            raw_.header().tail.store(tail ^ bit);
            ReservedCell cell;
            for (MailboxSender *sender : {&sender_, &late}) {
                EXPECT_FALSE(sender->has_room()) << tail;
                EXPECT_FALSE(sender->reserve(&cell)) << tail;
            }
            EXPECT_FALSE(mailbox_.arm()) << "the owner must not sleep on two messages";
            EXPECT_FALSE(mailbox_.skip_dead_sender());
            EXPECT_EQ(raw_.header().tail.load(), tail ^ bit);
        }
    }
    raw_.header().tail.store(tail_word(sent_ + 1));
    ReservedCell cell;
    EXPECT_FALSE(sender_.has_room()) << "the ticket of its last message";
    EXPECT_FALSE(sender_.reserve(&cell));
    expect_next(mailbox_, 1, 8);
    expect_next(mailbox_, 2, 200);
    EXPECT_FALSE(mailbox_.arm());
    EXPECT_FALSE(mailbox_.skip_dead_sender());
    raw_.header().tail.store(right);
    EXPECT_TRUE(mailbox_.arm());
    sent_ += 2;
    expect_works();
}

TEST_F(MailboxFaults, BrokenHeadIsAFullMailboxUntilTheOwnerWritesIt) {
    for (const uint64_t head : {uint64_t{0}, sent_ - 9, ~uint64_t{0}, uint64_t{1} << 63}) {
        while (send_pattern(sender_, sent_, 8)) {
            ++sent_;
        }
        const uint64_t right = sent_ - kGeometry.cell_count;
        EXPECT_EQ(raw_.header().head.load(), right);
        raw_.header().head.store(head);
        ReservedCell cell;
        EXPECT_FALSE(sender_.has_room()) << head;
        EXPECT_FALSE(sender_.reserve(&cell)) << head;
        for (uint64_t seed = right; seed < sent_; ++seed) {
            expect_next(mailbox_, seed, 8);
        }
        expect_works();
    }
}

/** Stated here once more, so that the test does not ask the code under test. */
bool is_in_slot(CellKind kind) {
    switch (kind) {
        case CellKind::am_slot:
        case CellKind::chunk_slot:
        case CellKind::put_blocks:
        case CellKind::get_blocks:
        case CellKind::block_data:
            return true;
        default:
            return false;
    }
}

TEST_F(MailboxFaults, EveryKindAndLengthIsCheckedAgainstItsPlace) {
    const uint32_t lengths[] = {0,   1,   Cell::kInlineBytes, Cell::kInlineBytes + 1,
                                256, 257, uint32_t{1} << 31,  UINT32_MAX};
    for (int kind = 0; kind < 256; ++kind) {
        for (const uint32_t length : lengths) {
            ReservedCell cell;
            ASSERT_TRUE(sender_.reserve(&cell));
            sender_.publish(cell, static_cast<CellKind>(kind), 0, length);
            const size_t limit =
                is_in_slot(static_cast<CellKind>(kind)) ? kGeometry.slot_bytes : Cell::kInlineBytes;
            const bool good =
                kind >= 1 && kind <= static_cast<int>(CellKind::block_data) && length <= limit;
            ReceivedCell message;
            ASSERT_EQ(mailbox_.receive(&message), good) << "kind " << kind << ", " << length;
            if (good) {
                EXPECT_EQ(message.length, length);
                mailbox_.release();
            }
            ++sent_;
        }
    }
    expect_works();
}

TEST_F(MailboxFaults, WhatLiesBehindAMessageIsCheckedAgainstItsSlot) {
    for (int kind = 0; kind < 256; ++kind) {
        for (const uint32_t length :
             {uint32_t{0}, uint32_t{8}, uint32_t{9}, uint32_t{256}, uint32_t{257}, UINT32_MAX}) {
            ReservedCell cell;
            ASSERT_TRUE(sender_.reserve(&cell));
            sender_.publish(cell, CellKind::am_slot, 0, 256);
            ASSERT_TRUE(sender_.reserve(&cell));
            sender_.publish(cell, static_cast<CellKind>(kind), 0, length);
            sent_ += 2;
            ReceivedCell message;
            ASSERT_TRUE(mailbox_.receive(&message));
            const MessagePayload behind =
                mailbox_.payload_behind(mailbox_.payload_at(message.slot + 8, 248));
            const bool good =
                static_cast<CellKind>(kind) == CellKind::am_slot && length > 8 && length <= 256;
            ASSERT_EQ(behind.message != 0, good) << "kind " << kind << ", " << length;
            ASSERT_EQ(behind.length, good ? length - 8 : 0);
            mailbox_.release();
            if (mailbox_.receive(&message)) {
                mailbox_.release();
            }
        }
    }
    expect_works();
}

TEST_F(MailboxFaults, SenderIndexesBeyondTheTableNeverReachTheCaller) {
    for (uint64_t sender = 1024; sender < 65536; sender += 257) {
        ReservedCell cell;
        ASSERT_TRUE(sender_.reserve(&cell));
        sender_.publish(cell, CellKind::am_inline, 0, 0);
        raw_.cell(cell.ticket)
            .label.store({CellKind::am_inline, 0, static_cast<uint16_t>(sender), 0});
        ReceivedCell message;
        ASSERT_FALSE(mailbox_.receive(&message));
        EXPECT_TRUE(mailbox_.empty()) << "it is dropped";
        ++sent_;
    }
    expect_works();
}

TEST_F(MailboxFaults, BrokenMessagesAreReportedOnceInAProcess) {
    for (int i = 0; i < 10; ++i, ++sent_) {
        ReservedCell cell;
        ReceivedCell message;
        ASSERT_TRUE(sender_.reserve(&cell));
        sender_.publish(cell, static_cast<CellKind>(77), 0, 1);
        ASSERT_FALSE(mailbox_.receive(&message));
    }
    EXPECT_EQ(reports_before_ + log_.count("broken message"), 1u);
}

TEST_F(MailboxFaults, NoWordConfusesASenderOrTheOwner) {
    Random random(5);
    uint64_t received = 0;
    uint64_t head = sent_;  // as the owner wrote it
    const auto ticket = [&] {
        return random.below(3) == 0 ? random.next() : head + random.below(20) - 10;
    };
    for (int i = 0; i < 20000; ++i) {
        raw_.cell(random.below(8)).state.store(ticket());
        raw_.record(random.below(3)).reserving.store(ticket());
        if (random.below(4) == 0) {
            raw_.header().tail.store(tail_word(ticket(), random.below(2) == 0));
        }
        if (random.below(4) == 0) {
            raw_.header().head.store(ticket());
        }
        sender_.has_room();
        ReservedCell cell;
        if (sender_.reserve(&cell)) {
            fill_pattern(cell.cell->payload, Cell::kInlineBytes, 1);
            fill_pattern(sender_.slot(cell), kGeometry.slot_bytes, 1);
            sender_.publish(cell, CellKind::am_slot, 0, 256);
        }
        ReceivedCell message;
        for (int j = 0; j < 4 && mailbox_.receive(&message); ++j) {
            ASSERT_LE(message.length, kGeometry.slot_bytes);
            ASSERT_LT(message.sender, kMaxSenders);
            mailbox_.release();
            ++received;
            head = raw_.header().head.load();
        }
        if (mailbox_.skip_dead_sender()) {
            head = raw_.header().head.load();
        }
        mailbox_.arm();
        if (random.below(8) == 0) {  // a sender that has believed nothing yet
            mailbox_.free_sender(0);
            sender_ = attach_sender(mailbox_.address());
        }
    }
    EXPECT_GT(received, 1000u) << "the words never made sense";
}

TEST_F(MailboxFaults, DeadOwnerIsNoSignalForItsSenders) {
    Child owner([](const Channel &channel) {
        int nothing;
        auto mailbox = MailboxReceiver::create(2, 128);
        mailbox->arm();
        channel.send(mailbox->address());
        channel.receive(&nothing);
        return 0;
    });
    MailboxAddress address;
    ASSERT_TRUE(owner.channel().receive(&address));
    MailboxSender sender = attach_sender(address);
    owner.kill_hard();
    EXPECT_TRUE(send_pattern(sender, 1, 8)) << "wakes a socket that is gone: no SIGPIPE";
    EXPECT_TRUE(send_pattern(sender, 2, 8));
    EXPECT_FALSE(send_pattern(sender, 3, 8));
}

// ---------------------------------------------------------------- attach

class MailboxAttach : public MailboxFaults {
protected:
    void expect_refused(const MailboxAddress &address, const std::string &reason) {
        const size_t descriptors = open_descriptors();
        const char *why = nullptr;
        EXPECT_FALSE(MailboxSender::attach(address, own_address(), &why)) << reason;
        ASSERT_NE(why, nullptr) << reason;
        EXPECT_NE(std::string(why).find(reason), std::string::npos) << why;
        EXPECT_EQ(open_descriptors(), descriptors);
    }
};

TEST_F(MailboxAttach, RefusesAnotherMailboxThanTheNamedOne) {
    MailboxAddress address = mailbox_.address();
    address.cookie.high ^= 1;
    expect_refused(address, "not the mailbox");
    raw_.header().magic ^= 1;
    expect_refused(mailbox_.address(), "not the mailbox");
    raw_.header().magic ^= 1;
    raw_.header().protocol_version += 1;
    expect_refused(mailbox_.address(), "not the mailbox");
    raw_.header().protocol_version -= 1;
    attach_sender(mailbox_.address());
}

TEST_F(MailboxAttach, RefusesImpossibleSizes) {
    for (const uint32_t cells : {0u, 3u, 7u, 9u, 1u << 20, 1u << 31, UINT32_MAX}) {
        raw_.header().cell_count = cells;
        expect_refused(mailbox_.address(), "impossible sizes");
    }
    raw_.header().cell_count = kGeometry.cell_count;
    for (const uint64_t bytes :
         {uint64_t{1} << 20, uint64_t{1} << 61, UINT64_MAX, UINT64_MAX - 127, uint64_t{8193}}) {
        raw_.header().slot_bytes = bytes;
        expect_refused(mailbox_.address(), "impossible sizes");
    }
    raw_.header().slot_bytes = kGeometry.slot_bytes;
    attach_sender(mailbox_.address());
}

TEST_F(MailboxAttach, RefusesASegmentThatIsNoMailbox) {
    MailboxAddress address = mailbox_.address();
    const auto tiny = Segment::create("gpushm-test", 4096);
    address.segment_fd = tiny->fd();
    expect_refused(address, "too short");
    const auto zeros = Segment::create("gpushm-test", kGeometry.segment_bytes());
    address.segment_fd = zeros->fd();
    address.cookie = {};
    expect_refused(address, "not the mailbox");
}

}  // namespace
}  // namespace gpushm
