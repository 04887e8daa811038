// SPDX-License-Identifier: BSD-3-Clause
// File descriptors from one process to another, beside the mailbox.
//
// A descriptor of GPU memory cannot be opened through /proc as a segment can: that would open the
// driver's device file anew. So it travels over a datagram socket with an abstract name (unix(7)),
// which its receiver makes when it first asks for one.
#pragma once

#include "core/process.hpp"
#include "core/unique_fd.hpp"

#include <cstdint>

namespace gpushm {

/** The receiver's side. One thread at a time. */
class DescriptorReceiver {
public:
    /** Makes the socket that the name `cookie` leads to; false, logged, when that fails. Once made,
     *  costs nothing. */
    bool open(const Cookie &cookie);

    /** The descriptor that was sent with `tag`; those with other tags are dropped. Never waits: the
     *  sender says in the mailbox that it has sent. Of other users' processes nothing is taken. */
    UniqueFd receive(uint64_t tag);

private:
    UniqueFd socket_;
};

/** Sends a descriptor to the receiver named `cookie`; false, logged at debug level, when that fails. */
bool send_descriptor(const Cookie &cookie, uint64_t tag, const UniqueFd &descriptor);

}  // namespace gpushm
