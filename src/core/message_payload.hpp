// SPDX-License-Identifier: BSD-3-Clause
// Payload of messages that wait in a mailbox of this process, as copies from it see it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm {

class MailboxReceiver;

/** Payload in a slot. It stays as it is until the mailbox has released its message. */
struct MessagePayload {
    uint64_t message = 0;  // its number, which no other message of this process ever has; 0: there is none
    const void *begin = nullptr;
    size_t length = 0;
};

/** While it lives, this thread hands out the oldest message of a mailbox, from its slot. So a copy that the handler makes can
 *  be told of what lies behind the message. */
class MessageInHand {
public:
    explicit MessageInHand(const MailboxReceiver &mailbox);
    ~MessageInHand();
    MessageInHand(const MessageInHand &) = delete;
    MessageInHand &operator=(const MessageInHand &) = delete;

    /** Whose message this thread hands out; null: none. */
    static const MailboxReceiver *mailbox();

private:
    const MailboxReceiver *const before_;  // a handler may make progress of another port
};

}  // namespace gpushm
