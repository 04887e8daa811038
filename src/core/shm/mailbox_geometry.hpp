// SPDX-License-Identifier: BSD-3-Clause
// Where the parts of a mailbox (mailbox_layout.hpp) lie in its segment.
#pragma once

#include "core/memory/registration_list.hpp"
#include "core/shm/direct_writes.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/offered_message.hpp"
#include "core/shm/shared_transfer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** UCP puts 8 bytes in front of the payload of most messages (ucp_eager_hdr_t,
 * src/ucp/tag/eager.h). Behind them the payload begins with a cache line, which CPUs and GPUs copy
 * faster: doc/decisions/shm-cache-lines.md. */
constexpr size_t kSlotOffset = 56;

/** Sizes and places in a mailbox segment. `base` is where the segment is mapped. */
struct MailboxGeometry {
    uint32_t cell_count;  // a power of two
    uint64_t slot_bytes;  // a multiple of 64

    /** Slots are used in turn, so more of them would not stay in the caches
     * (doc/decisions/shm-mailbox-slots.md). */
    static constexpr uint32_t kMaxSlots = 64;
    /** A power of two. */
    uint32_t slot_count() const { return std::min(cell_count, kMaxSlots); }

    static constexpr size_t kTransfersOffset = sizeof(MailboxHeader);
    static constexpr size_t kRecordsOffset =
        kTransfersOffset + kSharedTransfers * sizeof(SharedTransfer);
    static constexpr size_t kWritesOffset = kRecordsOffset + kMaxSenders * sizeof(SenderRecord);
    static constexpr size_t kRegistrationsOffset =
        kWritesOffset + kMaxSenders * sizeof(DirectWrites);
    static constexpr size_t kOffersOffset = kRegistrationsOffset + sizeof(RegistrationList);
    static constexpr size_t kCellsOffset =
        kOffersOffset + kOfferedMessages * sizeof(OfferedMessage);

    bool possible() const {
        return cell_count != 0 && (cell_count & (cell_count - 1)) == 0 &&
               cell_count <= (1u << 20) && slot_bytes % 64 == 0 && slot_bytes <= (1u << 26);
    }
    /** Bytes from one slot to the next. */
    uint64_t slot_stride() const { return slot_bytes + 64; }
    size_t segment_bytes() const {
        return kCellsOffset + cell_count * sizeof(Cell) + slot_count() * slot_stride();
    }
    Cell *cell(unsigned char *base, uint64_t ticket) const {
        return at<Cell>(base, kCellsOffset) + (ticket & (cell_count - 1));
    }
    unsigned char *slot(unsigned char *base, uint64_t ticket) const {
        return base + kCellsOffset + cell_count * sizeof(Cell) +
               (ticket & (slot_count() - 1)) * slot_stride() + kSlotOffset;
    }

    static MailboxHeader *header(unsigned char *base) { return at<MailboxHeader>(base, 0); }
    /** The first of kSharedTransfers. */
    static SharedTransfer *shared_transfers(unsigned char *base) {
        return at<SharedTransfer>(base, kTransfersOffset);
    }
    /** The first of kMaxSenders. */
    static SenderRecord *sender_records(unsigned char *base) {
        return at<SenderRecord>(base, kRecordsOffset);
    }
    /** The first of kMaxSenders, one for each record. */
    static DirectWrites *direct_writes(unsigned char *base) {
        return at<DirectWrites>(base, kWritesOffset);
    }
    static RegistrationList *registrations(unsigned char *base) {
        return at<RegistrationList>(base, kRegistrationsOffset);
    }
    /** The first of kOfferedMessages. */
    static OfferedMessage *offered_messages(unsigned char *base) {
        return at<OfferedMessage>(base, kOffersOffset);
    }

private:
    template <typename Object>
    static Object *at(unsigned char *base, size_t offset) {
        return reinterpret_cast<Object *>(base + offset);
    }
};
static_assert(MailboxGeometry::kTransfersOffset <= 4096,
              "Segment::discard() leaves the header as it is");
static_assert(MailboxGeometry::kRecordsOffset % alignof(SenderRecord) == 0,
              "records lie on lines of their own");
static_assert(MailboxGeometry::kOffersOffset % alignof(OfferedMessage) == 0,
              "offered messages lie on lines of their own");
static_assert(MailboxGeometry::kCellsOffset % alignof(Cell) == 0,
              "cells lie on lines of their own");

}  // namespace gpushm
