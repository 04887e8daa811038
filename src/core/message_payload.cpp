// SPDX-License-Identifier: BSD-3-Clause
#include "core/message_payload.hpp"

namespace gpushm {
namespace {

thread_local const MailboxReceiver *in_hand = nullptr;

}  // namespace

MessageInHand::MessageInHand(const MailboxReceiver &mailbox) { in_hand = &mailbox; }

MessageInHand::~MessageInHand() { in_hand = nullptr; }

const MailboxReceiver *MessageInHand::mailbox() { return in_hand; }

}  // namespace gpushm
