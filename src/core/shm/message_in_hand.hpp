// SPDX-License-Identifier: BSD-3-Clause
// The mailbox whose message this thread is handing out: a parameter of a callback that has none.
#pragma once

#include "core/base/immovable.hpp"

namespace gpushm {

class MailboxReceiver;

/** While it lives, this thread hands out the oldest message of a mailbox, from its slot.
 *
 * UCT's callback for active messages has no parameter that would reach the copies which its handler
 * makes: UCP copies a payload to a GPU by a put_short() of another interface. So this is a hidden
 * parameter, a thread-local variable. Only copy_any.cpp reads it, and passes it on as
 * CopyJob::mailbox. By the mailbox a copy learns which payload comes next. */
class MessageInHand : Immovable {
public:
    explicit MessageInHand(const MailboxReceiver &mailbox);
    ~MessageInHand();

    /** The mailbox whose message this thread hands out; null: none. */
    static const MailboxReceiver *mailbox();

private:
    const MailboxReceiver *const before_;  // a handler may make progress of another port
};

}  // namespace gpushm
