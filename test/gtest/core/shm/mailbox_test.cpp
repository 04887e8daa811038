// SPDX-License-Identifier: BSD-3-Clause
// Mailbox: cells, slots, room, sender records; one thread.
#include "test/gtest/core/shm/mailbox_support.hpp"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <optional>
#include <random>
#include <set>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

TEST(Mailbox, InlineMessagesOfEveryLengthArriveExactly) {
    auto mailbox = MailboxReceiver::create(4, 256);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    for (uint32_t length = 0; length <= Cell::kInlineBytes; ++length) {
        ASSERT_TRUE(send_pattern(sender, length, length));
        expect_next(*mailbox, length, length);
    }
}

TEST(Mailbox, SlotMessagesOfEveryLengthArriveExactly) {
    auto mailbox = MailboxReceiver::create(2, 512);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    EXPECT_EQ(sender.slot_bytes(), 512u);
    for (uint32_t length = Cell::kInlineBytes + 1; length <= 512; ++length) {
        ASSERT_TRUE(send_pattern(sender, length, length));
        expect_next(*mailbox, length, length);
    }
}

TEST(Mailbox, FullCellsAndSlotsDoNotTouchEachOther) {
    constexpr uint32_t kCells = 8;
    constexpr uint64_t kSlotBytes = 192;
    auto mailbox = MailboxReceiver::create(kCells, kSlotBytes);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    // Every byte that a message may use is written in all cells before the first one is read.
    for (uint64_t lap = 0; lap < 3; ++lap) {
        for (uint64_t i = 0; i < kCells; ++i) {
            ReservedCell cell;
            ASSERT_TRUE(sender.reserve(&cell));
            fill_pattern(cell.cell->payload, Cell::kInlineBytes, lap * 100 + i);
            fill_pattern(sender.slot(cell), kSlotBytes, lap * 100 + i + 50);
            sender.publish(cell, CellKind::am_slot, 1, kSlotBytes);
        }
        for (uint64_t i = 0; i < kCells; ++i) {
            ReceivedCell message;
            ASSERT_TRUE(mailbox->receive(&message));
            EXPECT_EQ(message.length, kSlotBytes);
            EXPECT_EQ(pattern_mismatch(message.payload, Cell::kInlineBytes, lap * 100 + i),
                      Cell::kInlineBytes);
            EXPECT_EQ(pattern_mismatch(message.slot, kSlotBytes, lap * 100 + i + 50), kSlotBytes);
            mailbox->release();
        }
    }
}

TEST(Mailbox, LastSlotEndsInsideTheSegment) {
    for (const uint32_t cells : {1u, 2u, 64u}) {
        const MailboxGeometry geometry = {cells, 4096};
        unsigned char *base = nullptr;
        const unsigned char *end = geometry.slot(base, cells - 1) + 4096;
        EXPECT_LE(static_cast<size_t>(end - base), geometry.segment_bytes());
        EXPECT_GT(static_cast<size_t>(end - base) + 64, geometry.segment_bytes());
        EXPECT_LE(reinterpret_cast<unsigned char *>(geometry.cell(base, cells - 1) + 1),
                  geometry.slot(base, 0));
    }
}

TEST(Mailbox, CarriesEveryKindWithItsId) {
    auto mailbox = MailboxReceiver::create(4, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    for (int kind = 1; kind <= static_cast<int>(CellKind::block_data); ++kind) {
        ReservedCell cell;
        ASSERT_TRUE(sender.reserve(&cell));
        sender.publish(cell, static_cast<CellKind>(kind), static_cast<uint8_t>(200 + kind), 8);
        ReceivedCell message;
        ASSERT_TRUE(mailbox->receive(&message));
        EXPECT_EQ(static_cast<int>(message.kind), kind);
        EXPECT_EQ(message.am_id, 200 + kind);
        EXPECT_EQ(message.length, 8u);
        mailbox->release();
    }
}

TEST(Mailbox, IsEmptyUntilPublishedAndReceivesOnlyOnceReleased) {
    auto mailbox = MailboxReceiver::create(4, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    MailboxSender other = attach_sender(mailbox->address(), 1);
    ReceivedCell message;
    EXPECT_TRUE(mailbox->empty());
    EXPECT_FALSE(mailbox->receive(&message));
    ReservedCell first, second;
    ASSERT_TRUE(sender.reserve(&first));
    ASSERT_TRUE(other.reserve(&second));
    other.publish(second, CellKind::am_inline, 2, 0);
    EXPECT_TRUE(mailbox->empty()) << "the one before is not published";
    EXPECT_FALSE(mailbox->receive(&message));
    sender.publish(first, CellKind::am_inline, 1, 0);
    EXPECT_FALSE(mailbox->empty());
    ASSERT_TRUE(mailbox->receive(&message));
    EXPECT_EQ(message.am_id, 1);
    ASSERT_TRUE(mailbox->receive(&message)) << "still the same message";
    EXPECT_EQ(message.am_id, 1);
    mailbox->release();
    ASSERT_TRUE(mailbox->receive(&message));
    EXPECT_EQ(message.am_id, 2);
    mailbox->release();
    EXPECT_TRUE(mailbox->empty());
}

class MailboxCells : public testing::TestWithParam<uint32_t> {};

TEST_P(MailboxCells, FillsUpExactlyAndEveryReleaseMakesRoomForOne) {
    const uint32_t cells = GetParam();
    auto mailbox = MailboxReceiver::create(cells, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    MailboxSender other = attach_sender(mailbox->address(), 1);
    uint64_t sent = 0;
    uint64_t received = 0;
    for (uint32_t i = 0; i < cells; ++i) {
        EXPECT_TRUE(sender.has_room() && other.has_room());
        ASSERT_TRUE(send_pattern(i % 2 ? other : sender, sent++, 120));
    }
    for (int lap = 0; lap < 5; ++lap) {
        for (uint32_t i = 0; i < cells; ++i) {
            EXPECT_FALSE(sender.has_room());
            EXPECT_FALSE(other.has_room());
            ASSERT_FALSE(send_pattern(sender, 0, 8));
            ASSERT_FALSE(send_pattern(other, 0, 8));
            expect_next(*mailbox, received++, 120);
            EXPECT_TRUE(sender.has_room());
            EXPECT_TRUE(other.has_room());
            ASSERT_TRUE(send_pattern(i % 2 ? other : sender, sent++, 120));
        }
    }
    while (received < sent) {
        expect_next(*mailbox, received++, 120);
    }
    EXPECT_TRUE(mailbox->empty());
}

TEST_P(MailboxCells, WrapsOverManyLaps) {
    const uint32_t cells = GetParam();
    auto mailbox = MailboxReceiver::create(cells, 256);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    Random random(cells);
    uint64_t sent = 0;
    uint64_t received = 0;
    while (received < 40 * cells + 1000) {
        for (size_t burst = random.below(cells) + 1; burst != 0; --burst) {
            if (!send_pattern(sender, sent, static_cast<uint32_t>(sent * 37 % 257))) {
                ASSERT_EQ(sent - received, cells) << "full although there is room";
                break;
            }
            ++sent;
        }
        for (size_t burst = random.below(cells) + 1; burst != 0 && received < sent; --burst) {
            expect_next(*mailbox, received, static_cast<uint32_t>(received * 37 % 257));
            ++received;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Counts, MailboxCells, testing::Values(1u, 2u, 8u, 64u));

// ---------------------------------------------------------------- fewer slots than cells

class MailboxSlots : public testing::Test {
protected:
    static constexpr uint32_t kCells = 256;
    static constexpr uint32_t kSlots = MailboxGeometry::kMaxSlots;
    static constexpr uint32_t kShort = 8;
    static constexpr uint32_t kLong = 120;

    MailboxSlots() : mailbox_(std::move(*MailboxReceiver::create(kCells, 128))) {}

    bool send(MailboxSender &sender, uint32_t length) {
        if (!send_pattern(sender, sent_, length)) {
            return false;
        }
        lengths_.push_back(length);
        ++sent_;
        return true;
    }
    /** As many as there is room for; their number. */
    uint32_t fill(MailboxSender &sender, uint32_t length) {
        uint32_t count = 0;
        while (send(sender, length)) {
            ++count;
        }
        return count;
    }
    void receive(uint64_t count) {
        for (; count != 0; --count, ++received_) {
            expect_next(mailbox_, received_, lengths_.at(received_));
        }
    }
    void receive_all() { receive(sent_ - received_); }

    MailboxReceiver mailbox_;
    MailboxSender one_ = attach_sender(mailbox_.address(), 0);
    MailboxSender other_ = attach_sender(mailbox_.address(), 1);
    uint64_t sent_ = 0;
    uint64_t received_ = 0;
    std::vector<uint32_t> lengths_;
};

TEST_F(MailboxSlots, NoMoreMessagesThanSlotsNeedOne) {
    for (int lap = 0; lap < 3; ++lap) {
        EXPECT_EQ(fill(one_, kLong), kSlots);
        EXPECT_FALSE(one_.has_room());
        receive(1);
        EXPECT_TRUE(one_.has_room());
        EXPECT_EQ(fill(other_, kLong), 1u);
        receive_all();
    }
}

TEST_F(MailboxSlots, MessagesWithoutOneFillTheMailbox) {
    ASSERT_TRUE(send(one_, kLong));
    EXPECT_EQ(fill(one_, kShort), kCells - 1);
    EXPECT_FALSE(other_.has_room(Room::cell));
    receive_all();
}

/** A slot may be free although its cell is not the next one. */
TEST_F(MailboxSlots, AnOldMessageKeepsItsSlot) {
    for (int lap = 0; lap < 5; ++lap) {
        for (uint32_t i = 0; i < kSlots - 1; ++i) {
            ASSERT_TRUE(send(i % 2 != 0 ? one_ : other_, i % 3 != 0 ? kShort : kLong));
        }
        ASSERT_TRUE(send(one_, kLong));
        ASSERT_FALSE(send(one_, kLong)) << "its slot is that of the oldest message";
        receive_all();
    }
}

TEST_F(MailboxSlots, WhoIsRefusedOneIsNotPassed) {
    fill(one_, kShort);
    ASSERT_FALSE(send(other_, kLong));
    receive(kCells - kSlots);
    for (int i = 0; i < 3; ++i) {
        EXPECT_FALSE(send(one_, kShort));
        EXPECT_FALSE(send(other_, kLong));
    }
    receive(1);
    ASSERT_TRUE(send(other_, kLong));
    EXPECT_FALSE(send(one_, kShort));
    receive(10);
    EXPECT_EQ(fill(one_, kShort), 10u);
    receive_all();
}

TEST_F(MailboxSlots, WhoFindsNoRoomForOneIsNotPassed) {
    fill(one_, kShort);
    ASSERT_FALSE(other_.has_room());
    receive(kCells - kSlots);
    EXPECT_FALSE(send(one_, kShort));
    receive_all();
}

/** Whoever was refused one may have died, or given its message up. */
TEST_F(MailboxSlots, AShortMailboxBecomesLongByItself) {
    fill(one_, kShort);
    {
        MailboxSender dead = attach_sender(mailbox_.address(), 2);
        ASSERT_FALSE(send(dead, kLong));
    }
    receive_all();
    EXPECT_EQ(fill(one_, kShort), kSlots);
    for (uint32_t i = 0; i < kCells; ++i) {
        receive(1);
        send(one_, kShort);
    }
    receive_all();
    EXPECT_EQ(fill(one_, kShort), kCells);
    receive_all();
}

/** Several senders of short messages keep the mailbox as full as they may, for its owner is slow.
 */
TEST_F(MailboxSlots, WhoNeedsOneHasAShareOfAFullMailbox) {
    std::vector<MailboxSender> flooding;
    for (int mark = 2; mark < 6; ++mark) {
        flooding.push_back(attach_sender(mailbox_.address(), mark));
    }
    std::mt19937 random(7);
    unsigned with_slot = 0;
    unsigned without = 0;
    for (int step = 0; step < 100000; ++step) {
        const auto who = random() % (flooding.size() + 1);
        if (who == flooding.size()) {
            with_slot += send(other_, kLong) ? 1 : 0;
        } else {
            without += send(flooding[who], kShort) ? 1 : 0;
        }
        if (random() % 8 == 0 && received_ != sent_) {
            receive(1);
        }
    }
    EXPECT_GT(with_slot, without / 20) << without;
    receive_all();
}

TEST(Mailbox, TellsWhatLiesBehindAMessageInItsSlot) {
    constexpr uint32_t kLength = 4096;
    auto mailbox = MailboxReceiver::create(8, kLength);
    auto other = MailboxReceiver::create(8, kLength);
    ASSERT_TRUE(mailbox && other);
    MailboxSender sender = attach_sender(mailbox->address());
    MailboxSender other_sender = attach_sender(other->address());
    std::set<uint64_t> numbers;
    for (uint64_t seed = 1; seed < 20; ++seed) {
        ASSERT_TRUE(send_pattern(sender, seed, kLength));
        ASSERT_TRUE(send_pattern(other_sender, seed, kLength));
        ReceivedCell message;
        ASSERT_TRUE(mailbox->receive(&message));
        ASSERT_TRUE(other->receive(&message));
        numbers.insert(other->payload_at(message.slot, 1).message);
        ASSERT_TRUE(mailbox->receive(&message));
        const MessagePayload payload = mailbox->payload_at(message.slot + 8, kLength - 8);
        EXPECT_EQ(payload.begin, message.slot + 8);
        EXPECT_EQ(payload.length, kLength - 8);
        EXPECT_EQ(mailbox->payload_behind(payload).message, 0u) << "there is none yet";

        ASSERT_TRUE(send_pattern(sender, seed + 100, kLength - 10));
        const MessagePayload part = mailbox->payload_at(message.slot + 8, kLength - 9);
        EXPECT_EQ(part.message, payload.message);
        EXPECT_EQ(mailbox->payload_behind(part).message, 0u) << "the rest comes first";
        const MessagePayload behind = mailbox->payload_behind(payload);
        ASSERT_EQ(behind.length, kLength - 18);
        std::vector<unsigned char> expected(kLength - 10);
        fill_pattern(expected.data(), expected.size(), seed + 100);
        EXPECT_EQ(memcmp(behind.begin, expected.data() + 8, behind.length), 0);
        mailbox->release();
        ASSERT_TRUE(mailbox->receive(&message));
        EXPECT_EQ(mailbox->payload_at(behind.begin, behind.length).message, behind.message);
        mailbox->release();
        other->release();
        numbers.insert(payload.message);
        numbers.insert(behind.message);
    }
    EXPECT_EQ(numbers.size(), 3u * 19) << "a number twice";
}

TEST(Mailbox, KnowsItsPayloadFromOtherMemory) {
    constexpr uint32_t kLength = 256;
    auto mailbox = MailboxReceiver::create(2, kLength);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    ASSERT_TRUE(send_pattern(sender, 1, kLength));
    ASSERT_TRUE(send_pattern(sender, 2, kLength));
    ReceivedCell message;
    ASSERT_TRUE(mailbox->receive(&message));
    const unsigned char *slot = message.slot;
    EXPECT_NE(mailbox->payload_at(slot, kLength).message, 0u);
    EXPECT_NE(mailbox->payload_at(slot + kLength, 0).message, 0u);
    EXPECT_EQ(mailbox->payload_at(slot - 1, 1).message, 0u);
    EXPECT_EQ(mailbox->payload_at(slot + 1, kLength).message, 0u);
    EXPECT_EQ(mailbox->payload_at(slot + kLength + 1, 0).message, 0u);
    EXPECT_EQ(mailbox->payload_at(slot, SIZE_MAX).message, 0u);
    EXPECT_EQ(mailbox->payload_at(&message, sizeof(message)).message, 0u);
    EXPECT_EQ(mailbox->payload_behind({}).message, 0u);
    EXPECT_EQ(mailbox->payload_behind(mailbox->payload_at(slot + kLength, 0)).message, 0u)
        << "it is no longer than that";
}

TEST(Mailbox, RefusesSizesThatItCannotHave) {
    LogCapture log;
    EXPECT_FALSE(MailboxReceiver::create(0, 128));
    EXPECT_FALSE(MailboxReceiver::create(3, 128)) << "not a power of two";
    EXPECT_FALSE(MailboxReceiver::create(64, SIZE_MAX));
    EXPECT_FALSE(MailboxReceiver::create(64, SIZE_MAX - 63)) << "the product wraps";
    EXPECT_FALSE(MailboxReceiver::create(1u << 31, 128));
    EXPECT_EQ(log.count("mailbox"), 5u);
}

TEST(Mailbox, LateSenderJudgesRoomByWhatOthersHaveSent) {
    auto mailbox = MailboxReceiver::create(8, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    MailboxSender late = attach_sender(mailbox->address(), 1);
    for (uint64_t i = 0; i < 8; ++i) {
        ASSERT_TRUE(send_pattern(sender, i, 8));
    }
    ReservedCell cell;
    EXPECT_FALSE(late.reserve(&cell));
    EXPECT_FALSE(late.has_room()) << "the mailbox is full";
    expect_next(*mailbox, 0, 8);
    EXPECT_TRUE(late.has_room());
    ASSERT_TRUE(late.reserve(&cell));
    EXPECT_EQ(cell.ticket, 8u);
    late.publish(cell, CellKind::am_inline, 0, 0);
    EXPECT_FALSE(late.has_room());
    EXPECT_FALSE(sender.has_room());
}

TEST(Mailbox, NewcomerFindsTheEndOfTheQueue) {
    for (const uint64_t before : {1, 7, 8, 19, 1000}) {
        auto mailbox = MailboxReceiver::create(8, 128);
        ASSERT_TRUE(mailbox);
        MailboxSender sender = attach_sender(mailbox->address());
        for (uint64_t i = 0; i < before; ++i) {
            ASSERT_TRUE(send_pattern(sender, i, 8));
            expect_next(*mailbox, i, 8);
        }
        MailboxSender late = attach_sender(mailbox->address(), 1);
        EXPECT_TRUE(late.has_room());
        ASSERT_TRUE(send_pattern(late, before, 8));
        expect_next(*mailbox, before, 8);
        ASSERT_TRUE(send_pattern(sender, before + 1, 8));
        expect_next(*mailbox, before + 1, 8);
    }
}

TEST(Mailbox, AnswerIsExpectedWhereOthersTookOneLineAndCameOneByOne) {
    auto mailbox = MailboxReceiver::create(8, 1024);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    EXPECT_FALSE(sender.expect_answer()) << "none was answered yet";
    ASSERT_TRUE(send_pattern(sender, 1, 8));
    EXPECT_TRUE(sender.expect_answer());
    EXPECT_FALSE(sender.expect_answer()) << "another one came before the answer";
    EXPECT_FALSE(sender.expect_answer());
    ASSERT_TRUE(send_pattern(sender, 2, kInFirstLine));
    EXPECT_TRUE(sender.expect_answer());
    ASSERT_TRUE(send_pattern(sender, 3, kInFirstLine + 1));
    EXPECT_FALSE(sender.expect_answer()) << "it took two lines";
    ASSERT_TRUE(send_pattern(sender, 4, 8));
    ASSERT_TRUE(send_pattern(sender, 5, 1024));
    EXPECT_TRUE(sender.expect_answer()) << "what was sent behind the answer is none";
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        constexpr uint32_t kLengths[] = {8, kInFirstLine, kInFirstLine + 1, 8, 1024};
        expect_next(*mailbox, seed, kLengths[seed - 1]);
    }
}

TEST(MailboxSenders, AnswersFindEverySender) {
    auto mailbox = MailboxReceiver::create(8, 128);
    ASSERT_TRUE(mailbox);
    std::vector<MailboxSender> senders;
    for (int32_t mark = 0; mark < 8; ++mark) {
        senders.push_back(attach_sender(mailbox->address(), mark));
        ASSERT_TRUE(send_pattern(senders.back(), static_cast<uint64_t>(mark), 8));
    }
    std::vector<bool> seen(kMaxSenders);
    for (int32_t mark = 0; mark < 8; ++mark) {
        ReceivedCell message;
        ASSERT_TRUE(mailbox->receive(&message));
        EXPECT_FALSE(seen[message.sender]);
        seen[message.sender] = true;
        const auto address = mailbox->sender_address(message.sender);
        ASSERT_TRUE(address);
        EXPECT_EQ(address->segment_fd, mark);
        EXPECT_EQ(address->pid, getpid());
        EXPECT_TRUE(address->cookie == own_address(mark).cookie);
        mailbox->release();
    }
}

TEST(MailboxSenders, FullTableRefusesOneMoreAndFreedRecordsServeAgain) {
    auto mailbox = MailboxReceiver::create(2, 128);
    ASSERT_TRUE(mailbox);
    for (uint32_t i = 0; i < kMaxSenders; ++i) {
        EXPECT_FALSE(mailbox->sender_address(static_cast<uint16_t>(i)));
        attach_sender(mailbox->address(), static_cast<int32_t>(i));
    }
    const size_t descriptors = open_descriptors();
    const char *why = nullptr;
    EXPECT_FALSE(MailboxSender::attach(mailbox->address(), own_address(), &why));
    EXPECT_STREQ(why, "its mailbox has no room for another sender");
    EXPECT_EQ(open_descriptors(), descriptors);

    mailbox->free_sender(1023);
    EXPECT_FALSE(mailbox->sender_address(1023));
    MailboxSender sender = attach_sender(mailbox->address(), 77777);
    ASSERT_TRUE(send_pattern(sender, 1, 8));
    ReceivedCell message;
    ASSERT_TRUE(mailbox->receive(&message));
    EXPECT_EQ(message.sender, 1023);
    EXPECT_EQ(mailbox->sender_address(1023)->segment_fd, 77777);
    EXPECT_EQ(mailbox->sender_address(1022)->segment_fd, 1022);
}

TEST(MailboxSenders, OnlyTheHolderOfARecordIsGivenUp) {
    auto mailbox = MailboxReceiver::create(4, 64);
    ASSERT_TRUE(mailbox);
    const MailboxSender first = attach_sender(mailbox->address());
    const MailboxSender second = attach_sender(mailbox->address());
    mailbox->give_up(0);
    EXPECT_TRUE(first.is_given_up());
    EXPECT_FALSE(second.is_given_up());
    mailbox->free_sender(0);
    EXPECT_FALSE(attach_sender(mailbox->address()).is_given_up()) << "it is another one's record";
}

TEST(MailboxSenders, NothingIsLeftOfASenderAndItsMailbox) {
    const size_t descriptors = open_descriptors();
    const size_t mappings = mappings_named("gpushm-mailbox");
    {
        auto mailbox = MailboxReceiver::create(2, 128);
        ASSERT_TRUE(mailbox);
        MailboxSender sender = attach_sender(mailbox->address());
        EXPECT_EQ(mappings_named("gpushm-mailbox"), mappings + 2);
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(mappings_named("gpushm-mailbox"), mappings);
}

/** How many datagrams wait at the mailbox; they are gone then. */
int wakes_taken(const MailboxReceiver &mailbox) {
    int count = 0;
    char nothing;
    while (recv(mailbox.event_fd(), &nothing, sizeof(nothing), MSG_DONTWAIT) >= 0) {
        ++count;
    }
    return count;
}

TEST(MailboxWake, OnlyAnArmedOwnerIsWokenAndOnlyOnce) {
    auto mailbox = MailboxReceiver::create(8, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender sender = attach_sender(mailbox->address());
    ASSERT_TRUE(send_pattern(sender, 0, 8));
    EXPECT_FALSE(readable(mailbox->event_fd())) << "nobody asked";
    EXPECT_FALSE(mailbox->arm()) << "there is a message already";
    expect_next(*mailbox, 0, 8);

    EXPECT_TRUE(mailbox->arm());
    EXPECT_FALSE(readable(mailbox->event_fd()));
    ASSERT_TRUE(send_pattern(sender, 1, 8));
    EXPECT_TRUE(readable(mailbox->event_fd()));
    ASSERT_TRUE(send_pattern(sender, 2, 8));
    EXPECT_EQ(wakes_taken(*mailbox), 1) << "one a sleep";
    expect_next(*mailbox, 1, 8);
    expect_next(*mailbox, 2, 8);
    EXPECT_TRUE(mailbox->arm());
    EXPECT_FALSE(readable(mailbox->event_fd()));
}

TEST(MailboxWake, OwnerDoesNotSleepWhileACellIsReserved) {
    auto mailbox = MailboxReceiver::create(8, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender slow = attach_sender(mailbox->address());
    MailboxSender quick = attach_sender(mailbox->address(), 1);
    ReservedCell cell;
    ASSERT_TRUE(slow.reserve(&cell));
    EXPECT_FALSE(mailbox->arm()) << "its sender does not know that anybody sleeps";
    ASSERT_TRUE(send_pattern(quick, 5, 8));
    EXPECT_FALSE(mailbox->arm());
    slow.publish(cell, CellKind::am_inline, 0, 0);
    EXPECT_FALSE(mailbox->arm());
    ReceivedCell message;
    ASSERT_TRUE(mailbox->receive(&message));
    mailbox->release();
    expect_next(*mailbox, 5, 8);
    EXPECT_FALSE(readable(mailbox->event_fd())) << "nobody slept";
    EXPECT_TRUE(mailbox->arm());
}

TEST(MailboxWake, FirstToPublishWakesWhoeverReservedFirst) {
    auto mailbox = MailboxReceiver::create(8, 128);
    ASSERT_TRUE(mailbox);
    MailboxSender slow = attach_sender(mailbox->address());
    MailboxSender quick = attach_sender(mailbox->address(), 1);
    EXPECT_TRUE(mailbox->arm());
    EXPECT_TRUE(mailbox->arm()) << "twice is once";
    ReservedCell cell;
    ASSERT_TRUE(slow.reserve(&cell));
    EXPECT_FALSE(readable(mailbox->event_fd())) << "there is nothing to receive";
    ASSERT_TRUE(send_pattern(quick, 5, 8));
    EXPECT_TRUE(readable(mailbox->event_fd())) << "the slow one may die";
    slow.publish(cell, CellKind::am_inline, 0, 0);
    EXPECT_EQ(wakes_taken(*mailbox), 1);
}

}  // namespace
}  // namespace gpushm
