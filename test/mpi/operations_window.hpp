// SPDX-License-Identifier: BSD-3-Clause
// Windows around a ring: each rank accesses the window of its right neighbour.
#pragma once

#include "operations_trial.hpp"

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

// How an access is begun and completed.
enum class Epoch { fence, lock, lock_all, post_start };

// Where the memory of a window comes from.
enum class Flavor { create, allocate, dynamic };

const char *to_string(Epoch epoch);
const char *to_string(Flavor flavor);

// Whether MPI makes such windows at all; some components of Open MPI do not for a single rank.
bool can_make_windows(const Group &group, Flavor flavor);

// Request-based operations are for locks only.
inline bool is_passive(Epoch epoch) {
    return epoch == Epoch::lock || epoch == Epoch::lock_all;
}

// The window of an operation under way.
struct Target {
    MPI_Win window;
    int rank;
    MPI_Aint base;  // of displacements in the target's memory
};

// Uploads the buffers, exposes the bytes of `memory` as a window, runs `access` on the window of
// the right neighbour between the calls of the epoch, and checks the buffers. With Flavor::allocate
// `memory`, which then has to be host memory, is copied into the window and back.
void run_epoch(Exchange &exchange, const Trial &trial, Flavor flavor, Epoch epoch,
               const Items &memory, const std::function<void(const Target &)> &access);

}  // namespace gpushm::mpi_test::operations
