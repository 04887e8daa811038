// SPDX-License-Identifier: BSD-3-Clause
// Which message this thread hands out.
#pragma once

namespace gpushm {

class MailboxReceiver;

/** While it lives, this thread hands out the oldest message of a mailbox, from its slot. So a copy
 * that the handler makes can be told of what lies behind the message. */
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
