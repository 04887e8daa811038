// SPDX-License-Identifier: BSD-3-Clause
// Whether the process wants standby kernels, and whether it may have any.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpushm {

/** Of the process. An absence counts itself and then asks whether a kernel is wanted; want() says
 * so, and then StandbyKernels::tend() asks whether there is an absence before it launches a kernel.
 * Of two that meet at least one must see the other (Dekker's pattern); otherwise a kernel would run
 * in an absence that takes itself for complete. So all of these accesses are sequentially
 * consistent. Thread safe. */
class StandbyDemand {
public:
    static StandbyDemand &instance() {
        static StandbyDemand demand;  // trivially destroyed
        return demand;
    }

    void want() { set_wanted(true); }
    void set_wanted(bool wanted) { wanted_.store(wanted, std::memory_order_seq_cst); }
    /** Whether a kernel runs, or will where a thread waits. */
    bool wanted() const { return wanted_.load(std::memory_order_seq_cst); }

    void begin_absence() {
        absences_.fetch_add(1, std::memory_order_seq_cst);
        absences_begun_.fetch_add(1, std::memory_order_relaxed);
    }
    void end_absence() { absences_.fetch_sub(1, std::memory_order_seq_cst); }
    bool has_absence() const { return absences_.load(std::memory_order_seq_cst) != 0; }
    /** How many absences there were: nearly all of them are waits for a GPU. */
    uint64_t absences() const { return absences_begun_.load(std::memory_order_relaxed); }

    /** For a forked child, which has no kernels. */
    void begin_anew() {
        wanted_.store(false, std::memory_order_relaxed);
        absences_.store(0, std::memory_order_relaxed);
        absences_begun_.store(0, std::memory_order_relaxed);
    }

private:
    std::atomic<bool> wanted_{false};
    std::atomic<unsigned> absences_{0};
    std::atomic<uint64_t> absences_begun_{0};
};

}  // namespace gpushm
