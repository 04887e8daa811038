// SPDX-License-Identifier: BSD-3-Clause
// Pages of which the driver knows nothing, so that it is not asked about host buffers again.
#pragma once

#include "core/base/addresses.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** A mapped page of ordinary host memory becomes another kind of memory only after it was unmapped,
 * or when the driver page-locks it. Code that sees both calls forget(). Thread safe; forget() takes
 * no lock and no memory, because it runs within munmap and malloc. */
class KnownHostPages {
public:
    /** The one of the process; never destroyed. */
    static KnownHostPages &instance() { return of_process_; }

    /** From now on forget() is called before pages go away. Until then no page is kept. */
    void trust() { trusted_.store(true, std::memory_order_release); }
    bool trusted() const { return trusted_.load(std::memory_order_acquire); }

    bool contains(const void *address) {
        return slot(address).load(std::memory_order_relaxed) == page(address);
    }
    /** The page is mapped: the CPU can read it. */
    void add(const void *address) {
        if (trusted()) {
            slot(address).store(page(address), std::memory_order_relaxed);
        }
    }
    void forget(const void *begin, size_t length);

private:
    static constexpr unsigned kSlotBits = 14;  // a collision costs a call of the driver
    static constexpr size_t kSlots = size_t{1} << kSlotBits;
    // Up to so many pages are looked up one by one; for more, a pass over all slots is faster.
    static constexpr uintptr_t kFewPages = kSlots / 8;
    static constexpr unsigned kPageShift = 12;
    using Slot = std::atomic<uintptr_t>;

    /** Never 0, which marks an empty slot: no buffer is at address 0. */
    static uintptr_t page(const void *address) { return to_number(address) >> kPageShift; }
    /** Buffers lie at regular distances: the number is spread by a multiplication (Knuth, The Art
     * of Computer Programming, vol. 3, 6.4). */
    static size_t index(uintptr_t page) {
        return static_cast<size_t>(page * 0x9e3779b97f4a7c15 >> (64 - kSlotBits));
    }
    Slot &slot(const void *address) { return slots_[index(page(address))]; }
    static void clear(Slot &slot, uintptr_t first, uintptr_t last);

    static KnownHostPages of_process_;

    std::atomic<bool> trusted_{false};
    Slot slots_[kSlots] = {};
};

// Initialised before anything runs, and trivially destroyed: the process ends with it as it is.
inline KnownHostPages KnownHostPages::of_process_;

}  // namespace gpushm
