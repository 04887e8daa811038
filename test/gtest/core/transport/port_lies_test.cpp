// SPDX-License-Identifier: BSD-3-Clause
// Single lies of a peer: what it says makes no sense, and nothing comes of it.
#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

/** A peer that only speaks by hand. */
class PortLies : public testing::Test {
protected:
    PortLies() {
        const char *why = "";
        sender_ = MailboxSender::attach(victim_->address(), mailbox_->address(), &why);
    }
    template <typename Payload>
    void send(CellKind kind, const Payload &payload, uint8_t am_id = 0) {
        ReservedCell cell;
        ASSERT_TRUE(sender_->reserve(&cell));
        memcpy(cell.cell->payload, &payload, sizeof(payload));
        sender_->publish(cell, kind, am_id, sizeof(payload));
    }

    /** The slot begins with `blocks`, and the cell says that it is `slot_length` bytes long. */
    void send_blocks(CellKind kind, const BlockMessage &message, const std::vector<Block> &blocks,
                     size_t slot_length) {
        ReservedCell cell;
        ASSERT_TRUE(sender_->reserve(&cell));
        memcpy(cell.cell->payload, &message, sizeof(message));
        std::copy(blocks.begin(), blocks.end(), reinterpret_cast<Block *>(sender_->slot(cell)));
        sender_->publish(cell, kind, 0, static_cast<uint32_t>(slot_length));
    }
    /** Starts gets until one is among blocks; none is answered. */
    void collect_gets(unsigned char *local, std::deque<Outcome> *gets) {
        RemoteMemory remote = {1, 1};
        remote.buffer.kind = MemoryKind::device;
        remote.of_program = true;
        for (size_t i = 0; i < 10; ++i) {
            gets->emplace_back();
            ASSERT_EQ(connection_.get(local + i, 1, remote, nullptr, gets->back().completion()),
                      Status::in_progress);
        }
        victim_->progress();
        ReceivedCell cell;
        bool collected = false;
        while (mailbox_->receive(&cell)) {
            collected |= cell.kind == CellKind::get_blocks;
            mailbox_->release();
        }
        ASSERT_TRUE(collected);
    }

    TestPort victim_;
    std::optional<MailboxReceiver> mailbox_ = MailboxReceiver::create(16, kSlotBytes);
    std::optional<MailboxSender> sender_;
    Connection &connection_ = victim_.connection(mailbox_->address());
};

TEST_F(PortLies, PutIsNotOverBeforeItsSourceWasRead) {
    const LogCapture log;
    struct Source {
        std::unique_ptr<unsigned char[]> memory{new unsigned char[100000]};
        unsigned calls = 0;
        static void free_at_end(void *self, Status) {
            auto *source = static_cast<Source *>(self);
            source->memory.reset();
            ++source->calls;
        }
    } put;
    ASSERT_EQ(
        connection_.put(put.memory.get(), 100000, {1, 1}, nullptr, {Source::free_at_end, &put}),
        Status::in_progress);
    send(CellKind::transfer_done, TransferDone{1, 0});
    victim_->progress();
    EXPECT_TRUE(connection_.failed());
    send(CellKind::ring_answer, RingAnswer{1});
    settle({&victim_});  // AddressSanitizer sees an access to what is freed
    EXPECT_EQ(put.calls, 1u);
    EXPECT_EQ(victim_.failed_connections.size(), 1u);
    EXPECT_EQ(log.count("a transfer that has not ended"), 1u);
}

TEST_F(PortLies, OfferedMessageIsNotOverBeforeItsDataCame) {
    const LogCapture log;
    unsigned char local[10];
    Outcome get;
    OfferedMessage &message = mailbox_->offered_message(0);
    message.open(5);
    RemoteMemory remote = {1, 1};
    remote.offer = {0, 5};
    ASSERT_EQ(connection_.get(local, sizeof(local), remote, nullptr, get.completion()),
              Status::in_progress);
    victim_->progress();
    send(CellKind::transfer_done, TransferDone{1, 1});
    settle({&victim_});
    expect_peer_failed(get);
    EXPECT_EQ(log.count("a transfer that has not ended"), 1u);
    message.complete(5);
    settle({&victim_});
}

TEST_F(PortLies, GetIsNotOverBeforeItsDataCame) {
    const LogCapture log;
    unsigned char local[10];
    Outcome get;
    ASSERT_EQ(connection_.get(local, sizeof(local), {1, 1}, nullptr, get.completion()),
              Status::in_progress);
    send(CellKind::transfer_done, TransferDone{1, 0});
    settle({&victim_});
    expect_peer_failed(get);
}

TEST_F(PortLies, GetIsNotOverWhileItsMemoryIsStillWritten) {
    TestPort victim(kCmaPort);
    const char *why = "";
    auto sender = MailboxSender::attach(victim->address(), mailbox_->address(), &why);
    ASSERT_TRUE(sender) << why;
    const LogCapture log;
    std::vector<unsigned char> source(4 * kSlotBytes);
    std::vector<unsigned char> local(source.size());
    const ShownRegistrations shown(*mailbox_);
    const Registration registration(source.data(), source.size());
    RemoteMemory remote = registration.at();
    remote.buffer.owner = process_cookie().low;  // CMA copies it, in pieces
    Outcome get;
    Connection &connection = victim.connection(mailbox_->address());
    ASSERT_EQ(connection.get(local.data(), local.size(), remote, nullptr, get.completion()),
              Status::in_progress);
    TransferChunk chunk = {};
    chunk.transfer_id = 1;
    chunk.total = 1;  // the get has another one
    chunk.is_reply = 1;
    for (size_t sent = 0; sent < local.size(); sent += kSlotBytes) {
        ReservedCell cell;
        ASSERT_TRUE(sender->reserve(&cell));
        memcpy(cell.cell->payload, &chunk, sizeof(chunk));
        sender->publish(cell, CellKind::chunk_slot, 0, kSlotBytes);
    }
    settle({&victim});
    EXPECT_TRUE(connection.failed());
    expect_peer_failed(get);
    EXPECT_EQ(log.count("a transfer that has not ended"), 1u);
}

TEST_F(PortLies, BlocksThatMakeNoSenseEndTheConnection) {
    constexpr size_t kBlock = sizeof(Block);
    struct Lie {
        const char *name;
        CellKind kind;
        uint64_t count;
        std::vector<Block> blocks;
        size_t slot_length;
    };
    unsigned char bytes[8] = {};
    const auto at = reinterpret_cast<uint64_t>(bytes);
    const std::vector<Lie> lies = {
        {"none", CellKind::put_blocks, 0, {}, 0},
        {"more than the slot has", CellKind::put_blocks, 2, {{at, 1}}, kBlock + 1},
        {"more than there may be", CellKind::get_blocks, kMaxBlocks + 1, {}, kSlotBytes},
        {"a count that overflows", CellKind::put_blocks, ~uint64_t{0} / kBlock + 2, {}, kBlock},
        {"an empty block", CellKind::get_blocks, 1, {{at, 0}}, kBlock},
        {"less data than the blocks say", CellKind::put_blocks, 1, {{at, 2}}, kBlock + 1},
        {"more data than the blocks say", CellKind::put_blocks, 1, {{at, 1}}, kBlock + 2},
        {"data of a get", CellKind::get_blocks, 1, {{at, 1}}, kBlock + 1},
        {"lengths that overflow",
         CellKind::get_blocks,
         2,
         {{at, 1}, {at, ~uint64_t{0}}},
         2 * kBlock},
        {"the end of the address space", CellKind::get_blocks, 1, {{~uint64_t{0}, 2}}, kBlock},
        {"more than an answer has room for",
         CellKind::get_blocks,
         2,
         {{at, kSlotBytes}, {at, 1}},
         2 * kBlock},
    };
    for (const Lie &lie : lies) {
        SCOPED_TRACE(lie.name);
        const LogCapture log;
        const Registration registration(bytes, sizeof(bytes));
        TestPort victim;
        std::optional<MailboxReceiver> mailbox = MailboxReceiver::create(16, kSlotBytes);
        const char *why = "";
        sender_ = MailboxSender::attach(victim->address(), mailbox->address(), &why);
        Connection &connection = victim.connection(mailbox->address());
        send_blocks(lie.kind, {1, registration.at().registration, lie.count}, lie.blocks,
                    lie.slot_length);
        settle({&victim});
        EXPECT_TRUE(connection.failed());
        EXPECT_TRUE(sender_->is_given_up());
        EXPECT_EQ(log.count("blocks that makes no sense"), 1u);
    }
    EXPECT_EQ(std::count(bytes, bytes + sizeof(bytes), 0), 8);
}

TEST_F(PortLies, BlocksOutsideOfTheRegistrationAreRefused) {
    const LogCapture log;
    unsigned char bytes[8] = {};
    const auto at = reinterpret_cast<uint64_t>(bytes);
    const Registration registration(bytes + 1, 6);
    for (const CellKind kind : {CellKind::put_blocks, CellKind::get_blocks}) {
        for (const std::vector<Block> &blocks :
             {std::vector<Block>{{at, 2}}, {{at + 1, 1}, {at + 6, 2}}, {{at + 3, 1}, {at, 1}}}) {
            const size_t table = blocks.size() * sizeof(Block);
            size_t data = 0;
            for (const Block &block : blocks) {
                data += kind == CellKind::put_blocks ? block.length : 0;
            }
            send_blocks(kind, {7, registration.at(0).registration, blocks.size()}, blocks,
                        table + data);
            settle({&victim_});
            ReceivedCell cell;
            ASSERT_TRUE(mailbox_->receive(&cell));
            ASSERT_EQ(cell.kind, CellKind::transfer_done);
            TransferDone done;
            memcpy(&done, cell.payload, sizeof(done));
            EXPECT_EQ(done.transfer_id, 7u);
            EXPECT_EQ(done.failed, 1u);
            mailbox_->release();
        }
    }
    EXPECT_FALSE(connection_.failed());
    EXPECT_EQ(std::count(bytes, bytes + sizeof(bytes), 0), 8);
}

TEST_F(PortLies, PeerThatTakesNoAnswersIsGivenUp) {
    const LogCapture log;
    unsigned char bytes[8] = {};
    const Registration registration(bytes, sizeof(bytes));
    const size_t accepted = 16 + kMaxBlockRequests;  // the mailbox has 16 cells
    for (size_t i = 0; i <= accepted; ++i) {
        ASSERT_FALSE(connection_.failed()) << i;
        send_blocks(CellKind::get_blocks, {i + 1, registration.at().registration, 1},
                    {{reinterpret_cast<uint64_t>(bytes), 8}}, sizeof(Block));
        victim_->progress();
    }
    EXPECT_TRUE(connection_.failed());
}

/** Ten gets are under way, the last six of them as blocks of one message. */
TEST_F(PortLies, BlocksAreNotThereWithoutTheirData) {
    const LogCapture log;
    unsigned char local[10] = {};
    std::deque<Outcome> gets;
    collect_gets(local, &gets);
    send(CellKind::transfer_done, TransferDone{5, 0});
    settle({&victim_});
    EXPECT_TRUE(connection_.failed());
    for (const Outcome &get : gets) {
        expect_peer_failed(get);
    }
}

/** The fifth operation is not even sent: gets are still collected. */
TEST_F(PortLies, BlocksThatThePeerDoesNotKnowDoNotEnd) {
    for (const CellKind kind : {CellKind::transfer_done, CellKind::block_data}) {
        const LogCapture log;
        TestPort victim;
        const std::optional<MailboxReceiver> mailbox = MailboxReceiver::create(16, kSlotBytes);
        const char *why = "";
        sender_ = MailboxSender::attach(victim->address(), mailbox->address(), &why);
        Connection &connection = victim.connection(mailbox->address());
        unsigned char local[10] = {};
        std::deque<Outcome> gets;
        RemoteMemory remote = {1, 1};
        remote.buffer.kind = MemoryKind::device;
        remote.of_program = true;
        for (unsigned char &byte : local) {
            gets.emplace_back();
            ASSERT_EQ(connection.get(&byte, 1, remote, nullptr, gets.back().completion()),
                      Status::in_progress);
        }
        send(kind, TransferDone{5, 1});
        settle({&victim});
        EXPECT_TRUE(connection.failed());
        for (const Outcome &get : gets) {
            expect_peer_failed(get);
        }
    }
}

TEST_F(PortLies, DataOfAnotherLengthThanTheBlocksEndsTheConnection) {
    const LogCapture log;
    unsigned char local[10] = {};
    std::deque<Outcome> gets;
    collect_gets(local, &gets);
    send_blocks(CellKind::block_data, {5, 0, 0}, {{~uint64_t{0}, ~uint64_t{0}}}, 7);
    settle({&victim_});
    EXPECT_TRUE(connection_.failed());
    EXPECT_EQ(std::count(local, local + sizeof(local), 0), 10);
    for (const Outcome &get : gets) {
        expect_peer_failed(get);
    }
}

TEST_F(PortLies, DataThatNobodyAskedForEndsTheConnection) {
    const LogCapture log;
    unsigned char local = 0;
    Outcome get;
    ASSERT_EQ(connection_.get(&local, 1, {1, 1}, nullptr, get.completion()), Status::in_progress);
    send_blocks(CellKind::block_data, {1, 0, 0}, {{~uint64_t{0}, ~uint64_t{0}}}, 1);
    settle({&victim_});
    EXPECT_TRUE(connection_.failed());
    EXPECT_EQ(local, 0);
    EXPECT_EQ(get.status, Status::peer_failed);
}

TEST_F(PortLies, MessageLongerThanAnyMayBeIsDropped) {
    const LogCapture log;
    auto ring = StagingRingSender::create(8 * kSlotBytes);
    send(CellKind::ring_offer, RingOffer{ring->cookie(), ring->segment_fd()});
    send(CellKind::am_ring, RingSpan{0, kSlotBytes});
    send(CellKind::am_ring, RingSpan{2 * kSlotBytes, kSlotBytes + 1});
    send(CellKind::am_ring, RingSpan{4 * kSlotBytes, 10});
    settle({&victim_});
    ASSERT_EQ(victim_.messages.size(), 2u);
    EXPECT_EQ(victim_.messages[0].bytes.size(), kSlotBytes);
    EXPECT_EQ(victim_.messages[1].bytes.size(), 10u);
}

/** Who waits for the answer sends nothing by a ring meanwhile. */
TEST_F(PortLies, SecondRingIsRefused) {
    const LogCapture log;
    auto ring = StagingRingSender::create(8 * kSlotBytes);
    for (const uint32_t accepted : {1, 0}) {
        send(CellKind::ring_offer, RingOffer{ring->cookie(), ring->segment_fd()});
        settle({&victim_});
        ReceivedCell cell;
        ASSERT_TRUE(mailbox_->receive(&cell)) << accepted;
        ASSERT_EQ(cell.kind, CellKind::ring_answer);
        RingAnswer answer;
        memcpy(&answer, cell.payload, sizeof(answer));
        EXPECT_EQ(answer.accepted, accepted);
        mailbox_->release();
    }
    EXPECT_EQ(log.count("a second ring"), 1u);
}

TEST_F(PortLies, MessageWithAnIdThatNoneMayHaveIsDropped) {
    const LogCapture log;
    auto ring = StagingRingSender::create(8 * kSlotBytes);
    send(CellKind::ring_offer, RingOffer{ring->cookie(), ring->segment_fd()});
    for (unsigned id = 0; id < 256; ++id) {
        const auto am_id = static_cast<uint8_t>(id);
        const std::optional<RingSpan> span = ring->allocate(kSlotBytes);
        ASSERT_TRUE(span) << "those that were dropped take no room";
        send(CellKind::am_inline, uint64_t{0}, am_id);
        send(CellKind::am_slot, uint64_t{0}, am_id);
        send(CellKind::am_ring, *span, am_id);
        settle({&victim_});
        for (const Message &message : victim_.messages) {
            EXPECT_EQ(message.id, id);
        }
        EXPECT_EQ(victim_.messages.size(), id < 32 ? 3u : 0u) << id;
        victim_.messages.clear();
    }
    EXPECT_LE(log.count("impossible id"), 1u) << "it is told once in a process";
}

/** Else a peer that has done nothing wrong, and lives, would wait for ever. */
TEST_F(PortLies, PeerOfALinkThatIsGivenUpIsTold) {
    for (const bool before : {true, false}) {  // the peer asks for something before that
        const LogCapture log;
        TestPort other;
        const char *why = "";
        auto liar = MailboxSender::attach(victim_->address(), other->address(), &why);
        unsigned char bytes[10];
        const Registration memory(bytes, sizeof(bytes));
        Connection &connection = victim_.connection(other);
        Outcome put;
        Outcome get;
        const auto ask = [&] {
            EXPECT_EQ(
                other.connection(victim_).get(bytes, 1, memory.at(), nullptr, get.completion()),
                Status::in_progress);
        };
        ASSERT_EQ(connection.put(bytes, sizeof(bytes), memory.at(), nullptr, put.completion()),
                  Status::in_progress);
        if (before) {
            ask();
        }
        ReservedCell cell;
        ASSERT_TRUE(liar->reserve(&cell));
        const TransferDone done = {1, 0};
        memcpy(cell.cell->payload, &done, sizeof(done));
        liar->publish(cell, CellKind::transfer_done, 0, sizeof(done));
        settle({&victim_});
        ASSERT_TRUE(connection.failed());
        if (!before) {
            ask();
        }
        EXPECT_TRUE(progress_until({&victim_, &other}, [&] { return get.done(); }));
        EXPECT_EQ(get.status, Status::peer_failed);
        settle({&other});
        EXPECT_EQ(other.failed_connections.size(), 1u);
    }
}

/** What is told of senders that cannot be answered, when each of `marks` sends four messages. */
size_t lines_of_unanswerable(TestPort &port, std::initializer_list<uint64_t> marks) {
    const LogCapture log;
    for (const uint64_t mark : marks) {
        MailboxAddress nowhere = port->address();
        nowhere.cookie = {mark, mark};
        const char *why = "";
        auto sender = MailboxSender::attach(port->address(), nowhere, &why);
        for (int i = 0; i < 4; ++i) {
            ReservedCell cell;
            EXPECT_TRUE(sender->reserve(&cell));
            sender->publish(cell, i == 3 ? CellKind::close : CellKind::transfer_done, 0, 0);
        }
        settle({&port});
    }
    return log.count("cannot answer");
}

TEST_F(PortLies, SenderThatCannotBeAnsweredIsToldOnceAndSoIsTheNext) {
    EXPECT_EQ(lines_of_unanswerable(victim_, {1}), 1u);
    EXPECT_EQ(lines_of_unanswerable(victim_, {2, 3}), 2u) << "they hold the record of the first";
}

TEST_F(PortLies, SenderThatCannotBeAnsweredDoesNotWaitForIt) {
    const LogCapture log;
    MailboxAddress nowhere = victim_->address();
    nowhere.cookie = {4, 4};
    const char *why = "";
    sender_ = MailboxSender::attach(victim_->address(), nowhere, &why);
    send(CellKind::get_request, GetRequest{});
    settle({&victim_});
    EXPECT_TRUE(sender_->is_given_up());
}

TEST_F(PortLies, GoodbyeInTheNameOfAnotherTakesNothingFromHim) {
    const LogCapture log;
    TestPort other;
    Connection &connection = victim_.connection(other);
    ASSERT_EQ(other.connection(victim_).am_short(1, 0, nullptr, 0), Status::ok);
    for (uint64_t seed = 0; seed < 10; ++seed) {
        PatternMessage message = {5000, seed};
        size_t packed;
        ASSERT_EQ(connection.am_pack(2, PatternMessage::pack, &message, &packed), Status::ok);
    }
    ReservedCell cell;
    ASSERT_TRUE(sender_->reserve(&cell));
    sender_->publish(cell, CellKind::close, 0, 0);
    cell.cell->label.store({CellKind::close, 0, 1, 0});  // the record of the other one
    settle({&victim_});
    victim_->progress();
    EXPECT_EQ(log.count("has not closed"), 1u);
    settle({&other});
    ASSERT_EQ(other.messages.size(), 10u);
    for (uint64_t seed = 0; seed < 10; ++seed) {
        EXPECT_EQ(check_message(other.messages[seed], 2, 5000, seed), "");
    }
    EXPECT_TRUE(connection.peer_alive());
    // His own goodbye is believed.
    const size_t mailboxes = mappings_named("gpushm-mailbox");
    other.destroy();
    connection.remove_user();
    settle({&victim_});
    victim_->progress();
    EXPECT_EQ(mappings_named("gpushm-mailbox"), mailboxes - 3)
        << "his own, and of both connections";
    EXPECT_EQ(log.count("has not closed"), 1u);
}

TEST_F(PortLies, NonsenseInTheRingHeaderEndsTheLink) {
    const LogCapture log;
    std::vector<unsigned char> local(1 << 20);
    Outcome put;
    ASSERT_EQ(connection_.put(local.data(), local.size(), {1, 1}, nullptr, put.completion()),
              Status::in_progress);
    victim_->progress();
    ReceivedCell cell;
    ASSERT_TRUE(mailbox_->receive(&cell));
    ASSERT_EQ(cell.kind, CellKind::ring_offer);
    RingOffer offer;
    memcpy(&offer, cell.payload, sizeof(offer));
    mailbox_->release();
    const char *why = "";
    const auto ring = Segment::attach(getpid(), offer.segment_fd, 0, &why);
    reinterpret_cast<RingHeader *>(ring->data())->released = ~uint64_t{0};
    send(CellKind::ring_answer, RingAnswer{1});
    EXPECT_TRUE(progress_until({&victim_}, [&] { return put.done(); }));
    EXPECT_EQ(put.status, Status::peer_failed);
    settle({&victim_});
    EXPECT_EQ(victim_.failed_connections.size(), 1u);
    EXPECT_EQ(log.count("invalid "), 1u);
}

TEST_F(PortLies, NonsenseInTheMailboxEndsTheLink) {
    const char *why = "";
    const auto segment = Segment::attach(getpid(), mailbox_->address().segment_fd, 0, &why);
    auto *header = reinterpret_cast<MailboxHeader *>(segment->data());
    header->tail.store(~uint64_t{0});
    const LogCapture log;
    unsigned char local[10];
    Outcome get;
    ASSERT_EQ(connection_.get(local, sizeof(local), {1, 1}, nullptr, get.completion()),
              Status::in_progress);
    EXPECT_TRUE(progress_until({&victim_}, [&] { return get.done(); })) << "it waits for room";
    EXPECT_EQ(get.status, Status::peer_failed);
    EXPECT_EQ(log.count("invalid "), 1u);
}

TEST_F(PortLies, HandleThatNobodyAskedForIsNotOpened) {
    const LogCapture log;
    MapAnswer answer = {};
    answer.owner = 5;
    answer.buffer_id = 6;
    for (const uint8_t sharing : {0, 1, 2, 3, 255}) {
        answer.sharing = static_cast<BufferKey::Sharing>(sharing);
        send(CellKind::map_answer, answer);
        send(CellKind::unmap_notice, UnmapNotice{answer.owner, answer.buffer_id});
        settle({&victim_});
    }
    EXPECT_FALSE(connection_.failed());
}

TEST_F(PortLies, RequestForMemoryThatIsNotThereGetsNoHandle) {
    const LogCapture log;
    unsigned char memory[16];
    MapRequest request = {};
    request.buffer.base = reinterpret_cast<uint64_t>(memory);
    request.buffer.length = sizeof(memory);
    request.buffer.buffer_id = 1;
    request.buffer.sharing = BufferKey::Sharing::ipc_handle;
    for (const uint64_t owner : {process_cookie().low, uint64_t{7}}) {
        request.buffer.owner = owner;
        send(CellKind::map_request, request);
        victim_->progress();
        ReceivedCell cell;
        ASSERT_TRUE(mailbox_->receive(&cell));
        ASSERT_EQ(cell.kind, CellKind::map_answer);
        MapAnswer answer;
        memcpy(&answer, cell.payload, sizeof(answer));
        mailbox_->release();
        EXPECT_EQ(answer.sharing, BufferKey::Sharing::none);
        EXPECT_EQ(answer.owner, owner);
        EXPECT_EQ(answer.buffer_id, 1u);
    }
}

}  // namespace
}  // namespace gpushm
