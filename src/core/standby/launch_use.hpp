// SPDX-License-Identifier: BSD-3-Clause
// Whether kernels that are launched for single costly copies come in time to make them.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpushm {

/** A costly copy is worth a launch by itself, but only if it comes while the kernel is there: not
 * if the program sends it right behind a wait for the GPU, nor if the message is there before the
 * kernel runs. Then launches only delay the driver's copies. See doc/decisions/standby-runs.md.
 *
 * Thread safe; copies that two threads count at once may count as one. */
class LaunchUse {
public:
    /** So many launches in a row without a copy, and there is a pause. */
    static constexpr uint32_t kUnused = 16;
    /** It lasts so many costly copies. Then two more launches in a row may show another result. */
    static constexpr uint32_t kPause = 512;

    /** A kernel has left. */
    void note_left(bool made_copies) {
        unused_.store(made_copies ? 0 : unused_.load(kRelaxed) + 1, kRelaxed);
    }

    /** A costly copy begins. Whether it is worth a launch by itself. */
    bool is_likely() {
        if (unused_.load(kRelaxed) < kUnused) {
            return true;
        }
        const uint32_t paused = paused_.load(kRelaxed) + 1;
        paused_.store(paused % kPause, kRelaxed);
        if (paused == kPause) {
            unused_.store(kUnused - 2, kRelaxed);
        }
        return false;
    }

private:
    static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

    std::atomic<uint32_t> unused_{0};  // launches in a row
    std::atomic<uint32_t> paused_{0};  // costly copies in this pause
};

}  // namespace gpushm
