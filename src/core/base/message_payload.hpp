// SPDX-License-Identifier: BSD-3-Clause
// Payload of messages that wait in a mailbox of this process, as copies from it see it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Payload in a slot. It stays as it is until the mailbox has released its message. */
struct MessagePayload {
    uint64_t message =
        0;  // its number, which no other message of this process ever has; 0: there is none
    const void *begin = nullptr;
    size_t length = 0;
};

}  // namespace gpushm
