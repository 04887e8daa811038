// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/control_queue.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {

unsigned ControlQueue::flush() {
    unsigned count = 0;
    ReservedCell reserved;
    while (!messages_.empty() && mailbox_.reserve(&reserved, room_of(messages_.front().kind))) {
        const Message &message = messages_.front();
        memcpy(reserved.cell->payload, message.payload, message.length);
        if (carries_slot(message.kind)) {
            std::copy(message.slot.begin(), message.slot.end(), mailbox_.slot(reserved));
        }
        mailbox_.publish(reserved, message.kind, 0,
                         carries_slot(message.kind) ? static_cast<uint32_t>(message.slot.size())
                                                    : message.length);
        messages_.pop_front();
        ++count;
    }
    return count;
}

void ControlQueue::send(CellKind kind, const void *payload, size_t length,
                        std::vector<unsigned char> slot) {
    Message message;
    message.kind = kind;
    message.length = static_cast<uint32_t>(length);
    memcpy(message.payload, payload, length);
    message.slot = std::move(slot);
    messages_.push_back(std::move(message));  // nothing that follows can fail
    flush();
}

size_t ControlQueue::count(CellKind kind) const {
    return static_cast<size_t>(
        std::count_if(messages_.begin(), messages_.end(),
                      [kind](const Message &message) { return message.kind == kind; }));
}

}  // namespace gpushm
