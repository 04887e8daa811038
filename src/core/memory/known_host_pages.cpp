// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/known_host_pages.hpp"

#include "core/base/addresses.hpp"

namespace gpushm {

void KnownHostPages::forget(const void *begin, size_t length) {
    if (length == 0) {
        return;
    }
    const uintptr_t first = page(begin);
    const uintptr_t last = (to_number(begin) + length - 1) >> kPageShift;
    if (last - first < kFewPages) {
        for (uintptr_t number = first; number <= last; ++number) {
            clear(slots_[index(number)], number, number);
        }
        return;
    }
    for (Slot &slot : slots_) {
        clear(slot, first, last);
    }
}

/** Empties a slot that holds a page of [first, last]. Most slots hold none, so it reads before it
 * writes. */
void KnownHostPages::clear(Slot &slot, uintptr_t first, uintptr_t last) {
    uintptr_t number = slot.load(std::memory_order_relaxed);
    if (number - first <= last - first) {
        slot.compare_exchange_strong(number, 0, std::memory_order_relaxed);
    }
}

}  // namespace gpushm
