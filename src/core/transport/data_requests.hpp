// SPDX-License-Identifier: BSD-3-Clause
// Gets that the peer carries out: it sends the data, or writes it by itself.
#pragma once

#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/write_permissions.hpp"

#include <cstdint>

namespace gpushm {

/** One thread at a time. */
class DataRequests {
public:
    DataRequests(PeerChannel &channel, Operations &operations, WritePermissions &permissions)
        : channel_(channel), operations_(operations), permissions_(permissions) {}

    /** Asks for what the get `id` reads. `may_be_pushed`: the peer may write it through a mapping
     * of its own. */
    void send(uint64_t id, bool may_be_pushed);

private:
    PeerChannel &channel_;
    Operations &operations_;
    WritePermissions &permissions_;
};

}  // namespace gpushm
