// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/reduced_arrivals.hpp"

namespace gpushm {

ReducedArrivals &ReducedArrivals::instance() {
    static ReducedArrivals arrivals;
    return arrivals;
}

/** With the mutex held. Null: there is none. */
template <typename Condition>
ReducedArrival *ReducedArrivals::find_if(const Condition &condition) const {
    ReducedArrival *arrival = first_;
    while (arrival != nullptr && !condition(*arrival)) {
        arrival = arrival->next_;
    }
    return arrival;
}

std::optional<FoundArrival> ReducedArrivals::find(const void *destination, size_t bytes) const {
    if (count_.load(std::memory_order_acquire) == 0) {
        return std::nullopt;
    }
    const std::lock_guard lock(mutex_);
    const ReducedArrival *arrival = find_if([&](const ReducedArrival &each) {
        const ArrivalReduction &reduction = each.reduction_;
        return each.destination_ == destination &&
               reduction.count * element_bytes(reduction.type) == bytes;
    });
    return arrival != nullptr ? std::optional(FoundArrival{arrival->reduction_, arrival->id_})
                              : std::nullopt;
}

void ReducedArrivals::set_reduced(uint64_t id) {
    const std::lock_guard lock(mutex_);
    if (ReducedArrival *arrival =
            find_if([id](const ReducedArrival &each) { return each.id_ == id; })) {
        arrival->is_reduced_ = true;
    }
}

ReducedArrival::ReducedArrival(void *destination, const ArrivalReduction &reduction)
    : destination_(destination), reduction_(reduction) {
    ReducedArrivals &all = ReducedArrivals::instance();
    const std::lock_guard lock(all.mutex_);
    id_ = ++all.last_id_;
    next_ = all.first_;
    all.first_ = this;
    all.count_.fetch_add(1, std::memory_order_release);
}

ReducedArrival::~ReducedArrival() {
    ReducedArrivals &all = ReducedArrivals::instance();
    const std::lock_guard lock(all.mutex_);
    ReducedArrival **link = &all.first_;
    while (*link != this) {
        link = &(*link)->next_;
    }
    *link = next_;
    all.count_.fetch_sub(1, std::memory_order_release);
}

bool ReducedArrival::is_reduced() const {
    const std::lock_guard lock(ReducedArrivals::instance().mutex_);
    return is_reduced_;
}

}  // namespace gpushm
