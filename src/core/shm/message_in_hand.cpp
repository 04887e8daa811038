// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/message_in_hand.hpp"

#include <utility>

namespace gpushm {
namespace {

thread_local const MailboxReceiver *in_hand = nullptr;

}  // namespace

MessageInHand::MessageInHand(const MailboxReceiver &mailbox)
    : before_(std::exchange(in_hand, &mailbox)) {}

MessageInHand::~MessageInHand() {
    in_hand = before_;
}

const MailboxReceiver *MessageInHand::mailbox() {
    return in_hand;
}

}  // namespace gpushm
