// SPDX-License-Identifier: BSD-3-Clause
// Whether the program launches so many kernels that a standby kernel beside them costs more than it
// gains.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gpushm {

/** A kernel of the program starts and ends later beside a standby kernel. So the standby kernel
 * loses where the program launches more kernels than it exchanges small messages. See
 * doc/decisions/standby-program-kernels.md.
 *
 * Thread safe; copies that two threads count at once may count as one. */
class ProgramKernels {
public:
    /** After so many small copies it is decided anew. */
    static constexpr uint32_t kCopies = 16;
    /** More launches between two small copies than that are a computation, beside which no kernel
     * stays. */
    static constexpr uint64_t kMostBetweenCopies = 4;

    /** A small copy begins. `launches`: how many kernels the program has launched so far. `weight`:
     * of how many common small copies it gains the time. */
    void note_copy(uint64_t launches, uint32_t weight) {
        const uint64_t new_launches = launches - launches_.exchange(launches, kRelaxed);
        const auto kernels = static_cast<uint32_t>(kernels_.load(kRelaxed) +
                                                   std::min(new_launches, kMostBetweenCopies));
        const uint32_t copies = copies_.load(kRelaxed) + weight;
        if (copies < kCopies) {
            kernels_.store(kernels, kRelaxed);
            copies_.store(copies, kRelaxed);
            return;
        }
        // Between the two limits it stays as it is.
        are_many_.store(kernels > copies + (are_many_.load(kRelaxed) ? 0 : copies / 4), kRelaxed);
        kernels_.store(0, kRelaxed);
        copies_.store(0, kRelaxed);
    }

    /** False before the first decision, too. */
    bool are_many() const { return are_many_.load(kRelaxed); }

private:
    static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

    std::atomic<uint64_t> launches_{0};
    std::atomic<uint32_t> kernels_{0};  // since the last decision
    std::atomic<uint32_t> copies_{0};   // since then
    std::atomic<bool> are_many_{false};
};

}  // namespace gpushm
