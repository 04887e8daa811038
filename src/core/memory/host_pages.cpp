// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/host_pages.hpp"

namespace gpushm {

HostPages &HostPages::instance() {
    static HostPages pages;  // trivially destroyed: the process ends with it as it is
    return pages;
}

void HostPages::forget(const void *begin, size_t length) {
    if (length == 0) {
        return;
    }
    const uintptr_t first = page(begin);
    const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + length - 1) >> kPageShift;
    if (last - first < kSlots) {
        for (uintptr_t number = first; number <= last; ++number) {
            uintptr_t expected = number;
            slots_[index(number)].compare_exchange_strong(expected, 0, std::memory_order_relaxed);
        }
        return;
    }
    for (Slot &slot : slots_) {
        const uintptr_t number = slot.load(std::memory_order_relaxed);
        if (number - first <= last - first) {
            slot.store(0, std::memory_order_relaxed);
        }
    }
}

}  // namespace gpushm
