// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of windows over processes of several worlds (MPI_Comm_spawn, MPI_Comm_accept), in Open
// MPI 5.0 and later.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** osc/ucx keeps one table of endpoints, by the rank of a process in its MPI_COMM_WORLD: the other
 * worlds' processes of the same rank get each other's, and those of a higher rank lie behind the
 * table. From now on they have a table of ours. Nothing in Open MPI 4.1, which keeps an endpoint
 * with each process. */
void redirect_endpoints_of_worlds(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
