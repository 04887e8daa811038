// SPDX-License-Identifier: BSD-3-Clause
// MPI_COMM_WORLD, which a program that uses sessions may not have.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

#include <vector>

namespace gpushm::openmpi {

constexpr int kUndefinedRank = -32766;  // MPI_UNDEFINED of Open MPI

/** Call before the other functions. False: this Open MPI lacks a function that they need. */
bool find_world(const OpenMpiLibrary &library);

/** MPI_COMM_WORLD, and whether it can be used: between MPI_Init and MPI_Finalize. False also after
 * find_world() has failed. */
void *comm_world();
bool has_world();

/** The ranks in MPI_COMM_WORLD of a group's processes, kUndefinedRank of those that are not in it.
 * Empty: MPI failed. */
std::vector<int> ranks_in_world(void *group);
std::vector<int> ranks_in_world_of_communicator(void *communicator);

}  // namespace gpushm::openmpi
