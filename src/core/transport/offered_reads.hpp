// SPDX-License-Identifier: BSD-3-Clause
// Gets of short messages that their senders offer (OfferedMessage) and copy themselves.
#pragma once

#include "core/base/drop_if.hpp"
#include "core/base/immovable.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpushm {

/** One thread at a time. */
class OfferedReads : Immovable {
public:
    OfferedReads(PeerChannel &channel, Operations &operations)
        : channel_(channel), operations_(operations) {}

    // If these return false, read_now() or start() is next.
    /** Whether this process may copy the message from the sender's GPU memory; confirm() follows.
     */
    bool claim(const OfferUse &offer) { return words(offer).claim(offer.id); }
    /** Whether this process may ask the sender for the block, and the sender makes progress until
     * it has copied it. */
    bool ask(const OfferUse &offer) { return words(offer).ask(offer.id); }
    /** After the copy. False: it does not count, because the sender did not wait. */
    bool confirm(const OfferUse &offer) { return words(offer).confirm(offer.id); }

    /** True when the message is in `local`. */
    bool read_now(void *local, size_t length, const OfferUse &offer);
    /** Waits until the sender has copied the message. */
    void start(uint64_t id);

    /** The number of ends. */
    unsigned progress();
    bool busy() const { return !reads_.empty(); }

    /** Gives up the operations of which `condition` says so by their ids. */
    template <typename Condition>
    void drop_if(Condition condition) {
        gpushm::drop_if(reads_, condition);
    }

private:
    OfferedMessage &words(const OfferUse &offer) const {
        return channel_.mailbox.offered_message(offer.index);
    }
    void finish(uint64_t id, const OfferUse &offer);

    PeerChannel &channel_;
    Operations &operations_;
    std::vector<uint64_t> reads_;  // of operations
};

}  // namespace gpushm
