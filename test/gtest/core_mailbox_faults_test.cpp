// SPDX-License-Identifier: BSD-3-Clause
// Mailbox: dead senders, words that make no sense, peers that are not what they say.
#include "core_mailbox_support.hpp"

#include "core_wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

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
          raw_(mailbox_, kGeometry), sender_(attach_sender(mailbox_.address())) {
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
        raw_.cell(sent_).state.store(cell_state(sent_, 5, kReserved));
        EXPECT_TRUE(mailbox_.skip_dead_sender()) << std::hex << owner;
        ++sent_;
        expect_works();
    }
}

TEST_F(MailboxFaults, BrokenStatesAreDroppedAndTheMailboxWorksOn) {
    constexpr uint64_t kLastTicket = ~uint64_t{0} >> 18;
    for (uint64_t phase = 0; phase < 4; ++phase) {
        for (const uint64_t sender : {0, 1, 1023, 1024, 65535}) {
            for (const int offset : {-8, -1, 0, 1, 8, 1000}) {
                if (offset == 0 && phase != 3) {
                    continue;  // a possible state
                }
                const uint64_t ticket = offset == 1000 ? kLastTicket : sent_ + offset;
                Cell &cell = raw_.cell(sent_);
                cell.kind = static_cast<uint8_t>(CellKind::am_inline);
                cell.length = 8;
                cell.state.store(cell_state(ticket, sender, phase));
                EXPECT_FALSE(mailbox_.empty()) << "the owner would sleep on it";
                ReceivedCell message;
                ASSERT_FALSE(mailbox_.receive(&message)) << "phase " << phase << ", " << ticket;
                ++sent_;
                expect_works();
            }
        }
    }
}

TEST_F(MailboxFaults, EveryKindAndLengthIsCheckedAgainstItsPlace) {
    const uint32_t lengths[] = {0,   1,   Cell::kInlineBytes,     Cell::kInlineBytes + 1,
                                256, 257, uint32_t{1} << 31, UINT32_MAX};
    for (int kind = 0; kind < 256; ++kind) {
        for (const uint32_t length : lengths) {
            ReservedCell cell;
            ASSERT_TRUE(sender_.reserve(&cell));
            sender_.publish(cell, static_cast<CellKind>(kind), 0, length);
            const bool slot = kind == static_cast<int>(CellKind::am_slot) ||
                              kind == static_cast<int>(CellKind::chunk_slot);
            const bool good = kind >= 1 && kind <= static_cast<int>(CellKind::close) &&
                              length <= (slot ? kGeometry.slot_bytes : Cell::kInlineBytes);
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

TEST_F(MailboxFaults, SenderIndexesBeyondTheTableNeverReachTheCaller) {
    for (uint64_t sender = 1024; sender < 65536; sender += 257) {
        ReservedCell cell;
        ASSERT_TRUE(sender_.reserve(&cell));
        sender_.publish(cell, CellKind::am_inline, 0, 0);
        raw_.cell(cell.ticket).state.store(cell_state(cell.ticket, sender, kPublished));
        ReceivedCell message;
        ASSERT_FALSE(mailbox_.receive(&message));
        raw_.cell(cell.ticket + 1).state.store(cell_state(cell.ticket + 1, sender, kReserved));
        ASSERT_TRUE(mailbox_.skip_dead_sender());
        sent_ += 2;
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

TEST_F(MailboxFaults, NoStateOfACellConfusesASender) {
    Random random(5);
    for (int i = 0; i < 20000; ++i) {
        const uint64_t ticket =
            random.below(3) == 0 ? random.next() : sent_ + random.below(20) - 10;
        raw_.cell(random.below(8)).state.store(
            cell_state(ticket, random.below(65536), random.below(4)));
        raw_.header().ticket_hint.store(random.below(2) == 0 ? random.next() << 16 : sent_);
        sender_.has_room();
        ReservedCell cell;
        if (sender_.reserve(&cell)) {
            fill_pattern(cell.cell->payload, Cell::kInlineBytes, 1);
            fill_pattern(cell.slot, kGeometry.slot_bytes, 1);
            sender_.publish(cell, CellKind::am_slot, 0, 256);
        }
        ReceivedCell message;
        for (int j = 0; j < 4 && mailbox_.receive(&message); ++j) {
            ASSERT_LE(message.length, kGeometry.slot_bytes);
            ASSERT_LT(message.sender, kMaxSenders);
            mailbox_.release();
        }
        mailbox_.skip_dead_sender();
    }
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
    EXPECT_TRUE(send_pattern(sender, 1, 8)) << "wakes a pipe that nobody reads: no SIGPIPE";
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
    for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{1} << 61, UINT64_MAX,
                                 UINT64_MAX - 127, uint64_t{8193}}) {
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

TEST_F(MailboxAttach, NeverWritesIntoAFileThatIsNoPipe) {
    char name[] = "gpushm-test-XXXXXX";
    const UniqueFd file(mkostemp(name, O_CLOEXEC));
    ASSERT_TRUE(file);
    unlink(name);
    MailboxAddress address = mailbox_.address();
    address.wake_fd = file.get();
    expect_refused(address, "wake-up pipe");
    address.wake_fd = -1;
    expect_refused(address, "wake-up pipe");
    mailbox_.arm();
    send_pattern(sender_, 1, 8);
    struct stat status;
    ASSERT_EQ(fstat(file.get(), &status), 0);
    EXPECT_EQ(status.st_size, 0);
}

}  // namespace
}  // namespace gpushm
