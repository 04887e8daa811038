// SPDX-License-Identifier: BSD-3-Clause
// From which size on Open MPI's data are collected in GPU memory.
#include "openmpi/settings/staging_limit.hpp"

#include <atomic>

namespace gpushm::openmpi {
namespace {

std::atomic<size_t> limit{64u << 10};

}  // namespace

size_t staging_limit() {
    return limit.load(std::memory_order_relaxed);
}

void set_staging_limit(size_t bytes) {
    limit.store(bytes, std::memory_order_relaxed);
}

}  // namespace gpushm::openmpi
