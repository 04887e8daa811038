// SPDX-License-Identifier: BSD-3-Clause
// Message contents which are different for each message and at each position, so that a stale,
// shifted, doubled or missing byte shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm::mpi_test {

// A byte that is not what it should be. `position` counts from the start of the checked range.
struct Mismatch {
    size_t position;
    unsigned char expected;
    unsigned char got;
};

// The seed of the n-th message of a run; different for each counter and size.
uint64_t message_seed(uint64_t counter, size_t size);

// Writes the pattern of `seed` to data[0, size).
void fill_pattern(unsigned char *data, size_t size, uint64_t seed);

// Writes the complement of the pattern: as a poison it differs from the expected data at every
// byte.
void fill_poison(unsigned char *data, size_t size, uint64_t seed);

// Compares data[0, size) with bytes [first, first + size) of the pattern or of the poison of
// `seed`. Returns the first difference, nothing when all bytes agree.
std::optional<Mismatch> find_pattern_mismatch(const unsigned char *data, size_t size, uint64_t seed,
                                              size_t first = 0);
std::optional<Mismatch> find_poison_mismatch(const unsigned char *data, size_t size, uint64_t seed,
                                             size_t first = 0);

}  // namespace gpushm::mpi_test
