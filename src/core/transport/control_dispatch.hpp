// SPDX-License-Identifier: BSD-3-Clause
// Which part of a connection a control message is for.
#pragma once

#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/transport/connection.hpp"

#include <cstring>

namespace gpushm {

/** False: the message of a peer is not as long as its kind says. */
template <typename Payload>
bool read_payload(const ReceivedCell &message, Payload *payload) {
    if (!carries_slot(message.kind) && message.length != sizeof(Payload)) {
        return false;
    }
    memcpy(payload, message.payload, sizeof(Payload));
    return true;
}

/** Logs, once, that a message of the peer is dropped for its kind or length. */
void report_wrong_length(const Connection &connection);

/** Hands over a message of protocol.hpp, other than active messages and close, which are the
 * port's. */
void hand_to(Connection &connection, const ReceivedCell &message);

}  // namespace gpushm
