// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/control_queue.hpp"

#include <cstring>

namespace gpushm {

unsigned ControlQueue::flush() {
    unsigned count = 0;
    ReservedCell reserved;
    while (!messages_.empty() && mailbox_.reserve(&reserved)) {
        const Message &message = messages_.front();
        memcpy(reserved.cell->payload, message.payload, message.length);
        mailbox_.publish(reserved, message.kind, 0, message.length);
        messages_.pop_front();
        ++count;
    }
    return count;
}

void ControlQueue::send(CellKind kind, const void *payload, size_t length) {
    Message message;
    message.kind = kind;
    message.length = static_cast<uint32_t>(length);
    memcpy(message.payload, payload, length);
    messages_.push_back(message);  // nothing that follows can fail
    flush();
}

}  // namespace gpushm
