// SPDX-License-Identifier: BSD-3-Clause
// What both sides of a mailbox find in its segment.
#pragma once

#include "core/memory/registration_list.hpp"
#include "core/shm/mailbox_geometry.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/offered_message.hpp"
#include "core/shm/segment.hpp"
#include "core/shm/shared_transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushm {

/** A mailbox that is mapped into this process. */
class MailboxMemory {
public:
    size_t slot_bytes() const { return geometry_.slot_bytes; }
    /** `index` < kSharedTransfers. */
    SharedTransfer &shared_transfer(uint32_t index) const {
        return MailboxGeometry::shared_transfers(segment_.data())[index];
    }
    /** `index` < kOfferedMessages. */
    OfferedMessage &offered_message(uint32_t index) const {
        return MailboxGeometry::offered_messages(segment_.data())[index];
    }
    RegistrationList *registrations() const {
        return MailboxGeometry::registrations(segment_.data());
    }
    /** Frees the memory, which others may still map. Nothing else is called afterwards. */
    void discard() { segment_.discard(); }

protected:
    MailboxMemory(Segment segment, const MailboxGeometry &geometry)
        : segment_(std::move(segment)), geometry_(geometry) {}
    MailboxHeader *header() const { return MailboxGeometry::header(segment_.data()); }
    SenderRecord *sender_records() const {
        return MailboxGeometry::sender_records(segment_.data());
    }
    Cell *cell_of(uint64_t ticket) const { return geometry_.cell(segment_.data(), ticket); }
    unsigned char *slot_of(uint64_t ticket) const {
        return geometry_.slot(segment_.data(), ticket);
    }

    Segment segment_;
    MailboxGeometry geometry_;
};

}  // namespace gpushm
