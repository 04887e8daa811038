// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/mapping_prior.hpp"

#include <algorithm>

namespace gpushm {
namespace {

int64_t nanoseconds(double seconds) {
    return static_cast<int64_t>(seconds * 1e9);
}

}  // namespace

bool MappingPrior::trusts(uint64_t message) const {
    return debt_ns_.load(std::memory_order_relaxed) < kMaxDebtNs &&
           (message > 1 || unreturned_.load(std::memory_order_relaxed) < kMaxUnreturned);
}

void MappingPrior::note_trust(uint64_t message) {
    if (message == 1) {
        unreturned_.fetch_add(1, std::memory_order_relaxed);
    }
}

void MappingPrior::note_return() {
    unsigned count = unreturned_.load(std::memory_order_relaxed);
    while (count != 0 &&
           !unreturned_.compare_exchange_weak(count, count - 1, std::memory_order_relaxed)) {
    }
}

void MappingPrior::note_cost(double seconds) {
    debt_ns_.fetch_add(std::min(nanoseconds(seconds), kMaxCostNs), std::memory_order_relaxed);
}

void MappingPrior::note_saving(double seconds) {
    int64_t debt = debt_ns_.load(std::memory_order_relaxed);
    while (debt != 0 &&
           !debt_ns_.compare_exchange_weak(debt, std::max<int64_t>(debt - nanoseconds(seconds), 0),
                                           std::memory_order_relaxed)) {
    }
}

}  // namespace gpushm
