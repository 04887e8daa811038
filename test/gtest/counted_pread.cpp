// SPDX-License-Identifier: BSD-3-Clause
#include "counted_pread.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace {
std::atomic<unsigned long> calls{0};
}  // namespace

extern "C" {
ssize_t __real_pread(int file, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void *buffer, size_t bytes, off_t offset) {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __real_pread(file, buffer, bytes, offset);
}
}

namespace gpushm::test {

unsigned long pread_calls() {
    return calls.load(std::memory_order_relaxed);
}

}  // namespace gpushm::test
