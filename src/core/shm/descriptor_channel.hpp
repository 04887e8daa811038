// SPDX-License-Identifier: BSD-3-Clause
// Passes file descriptors from one process to another, beside the mailbox.
//
// A descriptor of GPU memory cannot be opened through /proc as a segment can: that would open the
// device file of the driver anew. So it travels over a datagram socket with an abstract name
// (unix(7)), which the receiver makes when it first asks for a descriptor.
#pragma once

#include "core/base/process.hpp"
#include "core/base/unique_fd.hpp"

#include <cstdint>
#include <deque>

namespace gpushm {

/** Names the memory that a descriptor leads to: several peers use the same buffer ids. */
struct DescriptorTag {
    uint64_t owner;  // process_cookie().low of the sender
    uint64_t buffer_id;

    bool operator==(const DescriptorTag &other) const {
        return owner == other.owner && buffer_id == other.buffer_id;
    }
};

/** The receiver's side. One thread at a time. */
class DescriptorReceiver {
public:
    /** Makes the socket that `cookie` names; false, logged, when that fails. Costs nothing when the
     * socket exists. */
    bool open(const Cookie &cookie);

    /** The descriptor that was sent with `tag`; empty if it is not there. Descriptors with other
     * tags are kept until they are asked for, the last kMaxKept of them: the answers of several
     * peers may arrive in another order than their descriptors. Never waits: the sender says in the
     * mailbox that it has sent. Takes nothing from processes of other users. */
    UniqueFd receive(const DescriptorTag &tag);

    static constexpr size_t kMaxKept = 16;

private:
    struct Kept {
        DescriptorTag tag;
        UniqueFd descriptor;
    };

    UniqueFd take_kept(const DescriptorTag &tag);

    UniqueFd socket_;
    std::deque<Kept> kept_;  // the oldest first
};

/** Sends a descriptor to the receiver named `cookie`; false, logged at debug level, when that
 * fails. */
bool send_descriptor(const Cookie &cookie, const DescriptorTag &tag, const UniqueFd &descriptor);

}  // namespace gpushm
