// SPDX-License-Identifier: BSD-3-Clause
// A table of latencies for each pair of memory kinds.
#pragma once

#include "exchange.hpp"

namespace gpushm::mpi_test {

// Median one-way latency in microseconds of messages of `size` bytes which leave memory of kind
// `pair.from` and arrive in memory of kind `pair.to`, in both directions of a ping-pong of
// `iterations`.
double measure_latency(const Session &session, const KindPair &pair, size_t size, int iterations);

// Prints the table on rank 0. `repeat` multiplies the iterations.
void print_latency_table(const Session &session, const std::vector<KindPair> &pairs, int repeat);

}  // namespace gpushm::mpi_test
