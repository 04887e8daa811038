// SPDX-License-Identifier: BSD-3-Clause
// Help with gets of the peer between host memory (HostReads): this process has the data.
#pragma once

#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace gpushm {

/** One thread at a time. */
class HostReadHelper {
public:
    explicit HostReadHelper(PeerChannel &channel) : channel_(channel) {}
    HostReadHelper(const HostReadHelper &) = delete;
    HostReadHelper &operator=(const HostReadHelper &) = delete;

    /** Logs and ignores an invalid request. */
    void receive_request(const HelpRequest &request);
    /** Copies some pieces; their number. */
    unsigned progress();
    bool busy() const { return !requests_.empty(); }
    void clear() { requests_.clear(); }

private:
    /** What became of an attempt to copy one piece. */
    enum class Help { given, no_room, over };

    void forget_served();
    Help help_by_slot(const HelpRequest &request);
    Help help_by_cma(const HelpRequest &request);
    bool has_room() const;

    PeerChannel &channel_;
    std::deque<HelpRequest> requests_;
    // Pieces in slots that the peer has not received: few, so that messages of others are not far
    // behind them.
    static constexpr size_t kMaxSlotPieces = 16;
    bool sends_slots_ = false;
    uint64_t tickets_[kMaxSlotPieces] = {};  // of the pieces that were sent last
    size_t sent_ = 0;                        // pieces so far
    uint64_t sent_at_ = 0;                   // monotonic_nanoseconds() of the last one
};

}  // namespace gpushm
