// SPDX-License-Identifier: BSD-3-Clause
// Permissions of the peer to write into this process, and their end.
#pragma once

#include "core/transport/peer_channel.hpp"

#include <cstdint>
#include <vector>

namespace gpushm {

/** The uses of SharedTransfer that a connection has given to its peer. One thread at a time. */
class WritePermissions {
public:
    explicit WritePermissions(PeerChannel &channel) : channel_(channel) {}

    /** Call it before a permission is given; then close() allocates nothing. */
    void prepare() { closed_.reserve(kSharedTransfers); }

    /** Ends a permission for so many pieces, if `use` exists. The peer writes nothing by it after
     * await(). */
    void close(const SharedUse &use, uint32_t pieces);
    /** Waits until the peer has written what it had claimed of all closed permissions, or does not
     * do so in 2 s, which is logged. Then others may have the words: whatever the peer still says
     * is of another use. */
    void await();
    /** Ends a permission. On return the peer writes nothing by it. */
    void revoke(const SharedUse &use, uint32_t pieces) {
        close(use, pieces);
        await();
    }

private:
    /** A permission by which nothing is claimed any more. */
    struct Closed {
        SharedUse use;
        uint32_t claimed;  // pieces, by the peer
    };

    bool peer_writes(const Closed &closed) const;

    PeerChannel &channel_;
    std::vector<Closed> closed_;
};

}  // namespace gpushm
