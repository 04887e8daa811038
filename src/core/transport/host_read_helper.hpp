// SPDX-License-Identifier: BSD-3-Clause
// Help with gets of the peer between host memory (HostReads): this process has the data.
#pragma once

#include "core/base/immovable.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"

#include <deque>

namespace gpushm {

/** One thread at a time. */
class HostReadHelper : Immovable {
public:
    explicit HostReadHelper(PeerChannel &channel) : channel_(channel) {}

    /** Logs and ignores an invalid request. */
    void receive_request(const HelpRequest &request);
    /** Copies some pieces; their number. */
    unsigned progress();
    bool busy() const { return !requests_.empty(); }
    void clear() { requests_.clear(); }

private:
    void forget_served();
    bool copy_piece(const HelpRequest &request);

    PeerChannel &channel_;
    std::deque<HelpRequest> requests_;
};

}  // namespace gpushm
