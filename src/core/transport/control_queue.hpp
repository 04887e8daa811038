// SPDX-License-Identifier: BSD-3-Clause
// Control messages of a connection, in the order in which they are sent.
#pragma once

#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_sender.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace gpushm {

/** Keeps what finds no room in the peer's mailbox. One thread at a time. */
class ControlQueue {
public:
    explicit ControlQueue(MailboxSender &mailbox) : mailbox_(mailbox) {}

    /** Sends a message of protocol.hpp, at most Cell::kInlineBytes, or keeps it for flush().
     * `slot`: the data of a kind that carries_slot(). */
    void send(CellKind kind, const void *payload, size_t length, std::vector<unsigned char> slot);

    /** Sends what is kept, as far as there is room; the number of messages. */
    unsigned flush();

    /** Whether nothing is kept. */
    bool empty() const { return messages_.empty(); }
    /** How many messages of a kind are kept. */
    size_t count(CellKind kind) const;

    void clear() { messages_.clear(); }

private:
    struct Message {
        CellKind kind;
        unsigned char payload[Cell::kInlineBytes];
        uint32_t length;  // of the payload
        std::vector<unsigned char> slot;
    };

    MailboxSender &mailbox_;
    std::deque<Message> messages_;
};

}  // namespace gpushm
