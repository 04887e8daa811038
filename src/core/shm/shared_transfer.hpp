// SPDX-License-Identifier: BSD-3-Clause
// A transfer that two processes carry out together, or one lets the other carry out.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Transfers of the owner that peers may help with at a time. */
constexpr uint32_t kSharedTransfers = 64;

/** One use of a SharedTransfer, as messages name it. */
struct SharedUse {
    uint32_t index = kSharedTransfers;  // in the owner's mailbox; the default: none
    /** Unique in the owner's mailbox, not only between two processes: a request that a peer serves
     * late must not meet the use of another peer. */
    uint32_t id = 0;
    bool exists() const { return index != kSharedTransfers; }
};

/** The pieces of one get, in the mailbox segment of the process that asked for the data (the
 * owner). The owner reads pieces from the beginning, the process that has the data (the helper)
 * writes pieces from the end into the owner's memory, until they meet: whoever is quicker does
 * more, and an owner whose peer is busy does all alone. It is also the helper's permission: it
 * writes nothing that it has not claimed here, so that an owner who gives a transfer up knows what
 * to wait for. Nor does it read anything then: the owner may have told the program that its memory
 * is needed no more.
 *
 * `claims` is id << 32 | end << 16 | begin: pieces in [begin, end) are claimed by nobody. The
 * owner opens it (store-release) before it sends the id, claims with begin + 1, and closes it
 * with 0; the helper claims with end - 1; all by compare-and-swap (acq_rel) that expects the id
 * (SharedUse::id).
 *
 * `finished` is id << 32 | failed << 31 | count: how many of its pieces the helper has written.
 * The owner sets it to id << 32 before it opens `claims`; then only the helper adds to it
 * (release), after the bytes of the piece are in the owner's memory, or in a slot of its mailbox
 * that is published; the owner reads it (acquire). Once failed is set the owner takes all of the
 * helper's pieces for not written.
 *
 * A helper that dies with a piece claimed leaves count below the number of its claims: the owner
 * sees that it is dead, and its copies ended with it. One that lives and does not end what it has
 * claimed (it was stopped, say) is waited for a bounded time, then the words serve other uses: what
 * it says of this one is not of their id. A helper that writes nonsense can only make the owner
 * wait so long, or take data for complete that it was to write itself. */
struct alignas(64) SharedTransfer {
    std::atomic<uint64_t> claims;
    std::atomic<uint64_t> finished;

    static constexpr uint32_t kMaxPieces = 0xffff;

    // ---- the owner
    void open(uint32_t id, uint32_t pieces);
    std::optional<uint32_t> claim_first(uint32_t id);
    /** The first piece that the helper has claimed so far; `pieces` if there is none. */
    uint32_t first_of_helper(uint32_t id, uint32_t pieces) const;
    /** Nothing is claimed from now on; the first piece of the helper (all behind it are his),
     * `pieces` if it has none. */
    uint32_t close(uint32_t id, uint32_t pieces);
    enum class Helper { busy, done, failed };
    /** What became of the helper's `count` pieces. */
    Helper helper(uint32_t id, uint32_t count) const;

    // ---- the helper
    std::optional<uint32_t> claim_last(uint32_t id);
    /** Whether claim_last() would find nothing, now and later. */
    bool all_claimed(uint32_t id) const;
    void finish(uint32_t id, bool written);
};

}  // namespace gpushm
