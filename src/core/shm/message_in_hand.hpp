// SPDX-License-Identifier: BSD-3-Clause
// The message that this thread passes to a handler.
#pragma once

namespace gpushm {

class MailboxReceiver;

/** While it lives, this thread passes the oldest message of a mailbox, from its slot, to a handler.
 * A copy that the handler makes can then find the message behind it. */
class MessageInHand {
public:
    explicit MessageInHand(const MailboxReceiver &mailbox);
    ~MessageInHand();
    MessageInHand(const MessageInHand &) = delete;
    MessageInHand &operator=(const MessageInHand &) = delete;

    /** The mailbox of the message; null: this thread passes none. */
    static const MailboxReceiver *mailbox();

private:
    const MailboxReceiver *const before_;  // a handler may make progress of another port
};

}  // namespace gpushm
