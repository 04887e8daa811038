// SPDX-License-Identifier: BSD-3-Clause
// What is expected of a peer's buffer that was met just now.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpushm {

/** Whether a buffer will come so often that a mapping of it pays. Most programs send a buffer
 * hundreds of times, and what is mapped late is lost meanwhile; some send each buffer once. So a
 * buffer is mapped on trust, until that has turned out to be wrong:
 *
 * - Of buffers that were mapped at their first message and have not come again there are at most
 * kMaxUnreturned. Every other one waits for its second message. Each buffer that does come again,
 * mapped or not, makes room for one. So a program that sends each buffer once has that many mapped,
 * and no more.
 * - What mappings have cost is at most kMaxDebt more than what they have saved. So a program that
 * sends each buffer a few times loses that, once; then a buffer has to pay for its mapping
 * beforehand (IpcMappingCache).
 *
 * Thread safe. */
class MappingPrior {
public:
    /** Whether a buffer is to be mapped at its message of that number, the first being 1. */
    bool trusts(uint64_t message) const;
    /** It is going to be. */
    void note_trust(uint64_t message);
    /** The second message of a buffer. */
    void note_return();
    /** Of one mapping. More than kMaxCost does not count: the first one in a context takes 8 to 10
     * ms (H200, driver 580), which says nothing of later ones. */
    void note_cost(double seconds);
    /** By a message through a mapping. In most programs there is no debt after a while, and this a
     * single load. */
    void note_saving(double seconds);

private:
    static constexpr unsigned kMaxUnreturned = 8;     // neighbours in space, or GPUs of a node
    static constexpr int64_t kMaxDebtNs = 8'000'000;  // 16 mappings of usual size
    static constexpr int64_t kMaxCostNs = 1'200'000;  // 4 times the usual

    std::atomic<unsigned> unreturned_{0};
    std::atomic<int64_t> debt_ns_{0};  // not below 0
};

}  // namespace gpushm
