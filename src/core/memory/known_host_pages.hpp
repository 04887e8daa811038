// SPDX-License-Identifier: BSD-3-Clause
// Pages that the driver was seen not to know, to answer for host buffers without asking it again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushm {

/** A mapped page of ordinary host memory can become another kind only after it was unmapped, or by
 * registration with the driver; whoever is told of both keeps this right. Thread safe; forget()
 * takes no lock and no memory, as it runs inside of munmap and malloc. */
class KnownHostPages {
public:
    /** Of the process; never destroyed. */
    static KnownHostPages &instance();

    /** From now on forget() is called before pages go away. Until then nothing is kept. */
    void trust() { trusted_.store(true, std::memory_order_release); }
    bool trusted() const { return trusted_.load(std::memory_order_acquire); }

    bool contains(const void *address) const {
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
    static constexpr uintptr_t kFewPages =
        kSlots / 8;  // each looked up for itself: behind it all slots in order are sooner
    static constexpr unsigned kPageShift = 12;
    using Slot = std::atomic<uintptr_t>;

    /** Never 0, which is an empty slot: nobody has a buffer at address 0. */
    static uintptr_t page(const void *address) {
        return reinterpret_cast<uintptr_t>(address) >> kPageShift;
    }
    /** Buffers lie at regular distances: the number is spread by a multiplication (Knuth, The Art
     * of Computer Programming, vol. 3, 6.4). */
    static size_t index(uintptr_t page) {
        return static_cast<size_t>(page * 0x9e3779b97f4a7c15 >> (64 - kSlotBits));
    }
    Slot &slot(const void *address) { return slots_[index(page(address))]; }
    const Slot &slot(const void *address) const { return slots_[index(page(address))]; }
    static void clear(Slot &slot, uintptr_t first, uintptr_t last);

    std::atomic<bool> trusted_{false};
    Slot slots_[kSlots] = {};
};

}  // namespace gpushm
