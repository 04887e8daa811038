// SPDX-License-Identifier: BSD-3-Clause
// Which memory of a process peers may read and write by themselves, as they see it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** The living registrations (RegistrationTable) of the process that owns the mailbox in which it
 * lies. An id belongs to one place, of which it is a multiple of kPlaces beyond; a place holds its
 * latest id while that registration lives, else 0. Where more than kPlaces live, some are not
 * listed: peers ask the owner for what is there, as they do for what has ended.
 *
 * Written by any thread of the owner with the table's mutex held: an id before any peer is told of
 * it, and 0 before (fence) the end of the registration is reported, after which the program may
 * write there anew, or free it.
 *
 * Read by peers that copy by themselves, after (fence) all bytes that they have read, or written:
 * if the id is still there, the registration lived when the last of them was, for no id is used
 * twice. They also look before, so as not to begin in vain.
 *
 * When the mailbox closes all words become 0. If the owner dies they stay, and so does the memory,
 * until it goes. What a broken owner writes concerns only its own memory. */
struct RegistrationList {
    static constexpr size_t kPlaces = 8192;

    std::atomic<uint64_t> ids[kPlaces];

    static size_t place_of(uint64_t id) { return id % kPlaces; }

    /** After all that was read of the owner's memory. */
    bool contains(uint64_t id) const {
        std::atomic_thread_fence(std::memory_order_acquire);
        return ids[place_of(id)].load(std::memory_order_relaxed) == id;
    }
};

}  // namespace gpushm
