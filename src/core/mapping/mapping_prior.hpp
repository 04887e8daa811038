// SPDX-License-Identifier: BSD-3-Clause
// Whether a peer's buffer that was met just now is worth a mapping.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpushm {

/** Whether a buffer will be used so often that a mapping pays. Most programs send a buffer hundreds
 * of times, and lose time until it is mapped; some send each buffer once. So a buffer is mapped on
 * trust, within two limits:
 *
 * - At most kMaxUnreturned buffers that were mapped at their first message have not been used
 *   again. Every other buffer waits for its second message. Each buffer that is used again, mapped
 *   or not, makes room for one. So a program that sends each buffer once has that many mapped, and
 *   no more.
 * - Mappings have cost at most kMaxDebtNs more than they have saved. So a program that sends each
 *   buffer a few times loses that once; then a buffer has to pay for its mapping beforehand
 *   (IpcMappingCache).
 *
 * Thread safe. */
class MappingPrior {
public:
    /** Whether a buffer should be mapped at its message of that number; the first is 1. */
    bool trusts(uint64_t message) const;
    /** The buffer is going to be mapped at that message. */
    void note_trust(uint64_t message);
    /** A buffer has had its second message. */
    void note_return();
    /** The cost of one mapping; at most kMaxCostNs of it count, because the first mapping in a
     * context costs much more than later ones (doc/decisions/mapping-costs.md). */
    void note_cost(double seconds);
    /** What a message through a mapping has saved. Most programs have no debt after a while; then
     * this is one load. */
    void note_saving(double seconds);

private:
    static constexpr unsigned kMaxUnreturned = 8;     // neighbours in space, or GPUs of a node
    static constexpr int64_t kMaxDebtNs = 8'000'000;  // 16 mappings of usual size
    static constexpr int64_t kMaxCostNs = 1'200'000;  // 4 times the usual

    std::atomic<unsigned> unreturned_{0};
    std::atomic<int64_t> debt_ns_{0};  // not below 0
};

}  // namespace gpushm
