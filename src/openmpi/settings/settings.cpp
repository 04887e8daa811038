// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/settings/settings.hpp"

#include <atomic>

namespace gpushm::openmpi {
namespace {

std::atomic<size_t> staging{Limits().staging};
std::atomic<size_t> host_collectives{Limits().host_collectives};
std::atomic<size_t> buffered{Limits().buffered};

}  // namespace

Limits limits() {
    return {staging.load(std::memory_order_relaxed),
            host_collectives.load(std::memory_order_relaxed),
            buffered.load(std::memory_order_relaxed)};
}

void set_limits(const Limits &limits) {
    staging.store(limits.staging, std::memory_order_relaxed);
    host_collectives.store(limits.host_collectives, std::memory_order_relaxed);
    buffered.store(limits.buffered, std::memory_order_relaxed);
}

}  // namespace gpushm::openmpi
