// SPDX-License-Identifier: BSD-3-Clause
// The tests: messages between two ranks, each checked byte by byte.
#pragma once

#include "cuda_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpushm::mpi_test {

// The memory kinds on the sending and on the receiving side.
struct KindPair {
    MemoryKind from;
    MemoryKind to;
};

std::string to_string(const KindPair &pair);

// What one rank knows; both ranks run the same tests in the same order, so that the counter agrees.
struct Session {
    CudaDriver *driver;  // null: host memory only
    int rank;            // 0 or 1
    size_t max_size;
    bool quick;
    uint64_t counter = 0;  // messages so far
};

// What happened in one test on this rank.
struct Outcome {
    long checked_messages = 0;
    long failed_messages = 0;
    std::string first_failure;  // "" if none
};

// Single messages in all sizes and alignments: plain MPI_Send and MPI_Recv, receives posted before
// the send, and messages that arrive before their receive is posted; in both directions.
Outcome test_single_messages(Session &session, const KindPair &pair);

// Eight nonblocking messages in flight in both directions at once.
Outcome test_windows(Session &session, const KindPair &pair);

// Many messages of mixed sizes and kinds under one tag must arrive in the order in which they were
// sent.
Outcome test_order(Session &session, const std::vector<MemoryKind> &kinds);

}  // namespace gpushm::mpi_test
