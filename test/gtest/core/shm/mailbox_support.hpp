// SPDX-License-Identifier: BSD-3-Clause
// What the mailbox tests share: senders, patterned messages, a view of the raw words.
#pragma once

#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/shm/mailbox_sender.hpp"

#include "test/gtest/core/support.hpp"

#include <gtest/gtest.h>

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace gpushm::test {

/** The mailbox's words, as any process of the same user may write them. */
class RawMailbox {
public:
    RawMailbox(const MailboxReceiver &mailbox, MailboxGeometry geometry)
        : segment_(map(mailbox)), geometry_(geometry) {}

    MailboxHeader &header() { return *reinterpret_cast<MailboxHeader *>(segment_.data()); }
    SenderRecord &record(size_t index) {
        return MailboxGeometry::sender_records(segment_.data())[index];
    }
    Cell &cell(uint64_t ticket) { return *geometry_.cell(segment_.data(), ticket); }
    unsigned char *slot(uint64_t ticket) { return geometry_.slot(segment_.data(), ticket); }

private:
    static Segment map(const MailboxReceiver &mailbox) {
        const char *why = nullptr;
        return std::move(*Segment::attach(getpid(), mailbox.address().segment_fd, 0, &why));
    }

    Segment segment_;
    MailboxGeometry geometry_;
};

/** The word MailboxHeader::tail when `ticket` is the next to be reserved. */
constexpr uint64_t tail_word(uint64_t ticket, bool armed = false) {
    return ticket << 1 | (armed ? 1 : 0);
}

/** The address that a sender of this process leaves; `mark` tells senders apart. */
inline MailboxAddress own_address(int32_t mark = 0) {
    MailboxAddress address;
    address.cookie = {static_cast<uint64_t>(getpid()), static_cast<uint64_t>(mark)};
    address.pid = getpid();
    address.segment_fd = mark;
    return address;
}

inline MailboxSender attach_sender(const MailboxAddress &peer, int32_t mark = 0) {
    const char *why = "";
    auto sender = MailboxSender::attach(peer, own_address(mark), &why);
    EXPECT_TRUE(sender) << why;
    return std::move(*sender);
}

/** Sends `length` patterned bytes in the cell or in the slot; false when the mailbox is full. */
inline bool send_pattern(MailboxSender &sender, uint64_t seed, uint32_t length) {
    const bool in_cell = length <= Cell::kInlineBytes;
    ReservedCell cell;
    if (!sender.reserve(&cell, in_cell ? Room::cell : Room::slot)) {
        return false;
    }
    fill_pattern(in_cell ? cell.cell->payload : sender.slot(cell), length, seed);
    sender.publish(cell, in_cell ? CellKind::am_inline : CellKind::am_slot,
                   static_cast<uint8_t>(seed % 32), length);
    return true;
}

/** "" when the message is the one that send_pattern made. */
inline std::string check_pattern(const ReceivedCell &message, uint64_t seed, uint32_t length) {
    const bool in_cell = length <= Cell::kInlineBytes;
    if (message.length != length || message.am_id != seed % 32 ||
        message.kind != (in_cell ? CellKind::am_inline : CellKind::am_slot)) {
        return "message " + std::to_string(seed) + " of " + std::to_string(length) +
               " bytes came as " + std::to_string(message.length) + " bytes, id " +
               std::to_string(message.am_id);
    }
    const unsigned char *data = in_cell ? message.payload : message.slot;
    const size_t wrong = pattern_mismatch(data, length, seed);
    return wrong == length ? ""
                           : "message " + std::to_string(seed) + " differs at byte " +
                                 std::to_string(wrong) + " of " + std::to_string(length);
}

/** Takes one message out and expects it to be that one. */
inline void expect_next(MailboxReceiver &mailbox, uint64_t seed, uint32_t length) {
    ReceivedCell message;
    ASSERT_TRUE(mailbox.receive(&message)) << "message " << seed << " is missing";
    EXPECT_EQ(check_pattern(message, seed, length), "");
    mailbox.release();
}

/** Whether the owner would be woken now. */
inline bool readable(int fd) {
    pollfd event = {fd, POLLIN, 0};
    return poll(&event, 1, 0) == 1;
}

}  // namespace gpushm::test
