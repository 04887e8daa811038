// SPDX-License-Identifier: BSD-3-Clause
// Small puts and gets of the peer that come as one message. BlockTransfers has the other side.
#pragma once

#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"

#include <cstddef>

namespace gpushm {

/** Copies all blocks of a message together, within the call. One thread at a time. */
class PeerBlocks {
public:
    explicit PeerBlocks(PeerChannel &channel) : channel_(channel) {}

    void receive_puts(const BlockMessage &message, const unsigned char *slot, size_t slot_length);
    void receive_gets(const BlockMessage &message, const unsigned char *slot, size_t slot_length);

private:
    void refuse(const BlockMessage &message);
    void give_up_broken_peer();

    PeerChannel &channel_;
};

}  // namespace gpushm
