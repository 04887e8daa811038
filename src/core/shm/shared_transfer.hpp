// SPDX-License-Identifier: BSD-3-Clause
// A transfer that two processes carry out together, or that one of them leaves to the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace gpushm {

/** How many transfers of the owner peers may help with at a time. */
constexpr uint32_t kSharedTransfers = 64;

/** One use of a SharedTransfer, as messages name it. */
struct SharedUse {
    uint32_t index = kSharedTransfers;  // in the owner's mailbox; the default: none
    /** Unique in the owner's mailbox, not only between two processes: a request that a peer serves
     * late must not match the use of another peer. */
    uint32_t id = 0;
    bool exists() const { return index != kSharedTransfers; }
};

/** The pieces of one get, in the mailbox segment of the process that asked for the data (the
 * owner). The owner reads pieces from the beginning. The process that has the data (the helper)
 * writes pieces from the end into the owner's memory, until they meet. So the faster one does
 * more, and an owner whose peer is busy does everything. It is also the helper's permission: the
 * helper writes nothing that it has not claimed here, so an owner that gives a transfer up knows
 * what to wait for. Nor does the helper read anything then: the owner may have told the program
 * that its memory is free.
 *
 * `claims` is id << 32 | end << 16 | begin: pieces in [begin, end) are not claimed. The owner
 * opens it (store-release) before it sends the id, claims with begin + 1, and closes it with 0.
 * The helper claims with end - 1. All changes are compare-and-swaps (acq_rel) that expect the id
 * (SharedUse::id).
 *
 * `finished` is id << 32 | failed << 31 | count: how many of its pieces the helper has written.
 * The owner sets it to id << 32 before it opens `claims`. Then only the helper adds to it
 * (release), after the bytes of the piece are in the owner's memory. The owner reads it (acquire).
 * Once failed is set, the owner counts none of the helper's pieces as written.
 *
 * A helper that dies with a claimed piece leaves count below the number of its claims: the owner
 * sees that it is dead, and its copies ended with it. A living helper that does not finish its
 * claims (it was stopped, say) is waited for a bounded time; then the words serve other uses,
 * and what it says later does not have their id. A helper that writes nonsense can only make the
 * owner wait that long, or take data for complete that the helper had to write. */
struct alignas(64) SharedTransfer {
    std::atomic<uint64_t> claims;
    std::atomic<uint64_t> finished;

    static constexpr uint32_t kMaxPieces = 0xffff;

    // ---- for the owner
    void open(uint32_t id, uint32_t pieces);
    std::optional<uint32_t> claim_first(uint32_t id);
    /** The first piece that the helper has claimed so far; `pieces` if there is none. */
    uint32_t first_of_helper(uint32_t id, uint32_t pieces) const;
    /** Ends all claims. Returns the first piece of the helper, to which all later pieces belong
     * too; `pieces` if the helper has none. */
    uint32_t close(uint32_t id, uint32_t pieces);
    enum class Helper { busy, done, failed };
    /** The state of the helper's `count` pieces. */
    Helper helper(uint32_t id, uint32_t count) const;

    // ---- for the helper
    std::optional<uint32_t> claim_last(uint32_t id);
    /** Whether claim_last() would find nothing, now and later. */
    bool all_claimed(uint32_t id) const;
    void finish(uint32_t id, bool written);
};

}  // namespace gpushm
