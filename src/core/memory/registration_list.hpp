// SPDX-License-Identifier: BSD-3-Clause
// The registrations of a process whose memory peers may read and write by themselves, as the peers
// see them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** The current registrations (RegistrationTable) of the process that owns the mailbox in which this
 * list lies. Each id has one place: id modulo kPlaces. A place holds its latest id while that
 * registration exists, else 0. If more than kPlaces registrations exist, some are not listed: peers
 * then ask the owner, as they do for registrations that have ended.
 *
 * Any thread of the owner writes it, with the table's mutex held: an id before any peer is told of
 * it, and 0 before (fence) the end of the registration is reported. After that the program may
 * write to the memory anew, or free it.
 *
 * Peers that copy by themselves read it after (fence) all bytes that they have read or written. If
 * the id is still there, the registration existed when the last byte was copied, because no id is
 * used twice. They also look before they begin, to save the work.
 *
 * When the mailbox closes all words become 0. If the owner dies they stay, and so does the memory
 * until the last mapping goes. What a broken owner writes concerns only its own memory. */
struct RegistrationList {
    static constexpr size_t kPlaces = 8192;

    std::atomic<uint64_t> ids[kPlaces];

    static size_t place_of(uint64_t id) { return id % kPlaces; }

    /** To be called after everything was read from the memory of the owner. */
    bool contains(uint64_t id) const {
        std::atomic_thread_fence(std::memory_order_acquire);
        return ids[place_of(id)].load(std::memory_order_relaxed) == id;
    }
};

}  // namespace gpushm
