// SPDX-License-Identifier: BSD-3-Clause
// A span of the staging ring on its way out.
#pragma once

#include "core/copy/copy_engine.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/transport/protocol.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace gpushm {

/** A span that is being filled. It is published when it is full and all before it are. */
struct OutgoingSpan {
    RingSpan span;
    std::vector<CopyTicket> tickets;  // of copies into it; empty: filled
    bool copy_failed = false;
    const void *owner;
    CellKind kind;                  // am_ring or chunk_ring
    uint8_t am_id = 0;              // am_ring
    uint64_t operation = 0;         // am_ring: completes when published
    TransferChunk chunk = {};       // chunk_ring
    uint64_t speculative_copy = 0;  // its number, while the peer has not asked for it; else 0
    const unsigned char *source = nullptr;  // of a speculative copy and of a reply
    bool by_gpu = false;                    // of a speculative copy
    uint64_t registration = 0;              // reply: RegistrationTable id of the source
    /** Reply: RegistrationTable::removals() when the peer's request was good. */
    uint64_t removals = 0;
};

using OutgoingSpans = std::deque<OutgoingSpan>;

}  // namespace gpushm
