// SPDX-License-Identifier: BSD-3-Clause
// The payload of a message in a mailbox of this process, as copies from it see it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Payload in a slot. It does not change until the mailbox has released its message. */
struct MessagePayload {
    uint64_t message = 0;  // a number that this process uses once; 0: no payload
    const void *begin = nullptr;
    size_t length = 0;
};

}  // namespace gpushm
