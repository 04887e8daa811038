// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of windows whose processes are in several MPI_COMM_WORLDs (MPI_Comm_spawn,
// MPI_Comm_accept), in Open MPI 5.0 and later.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** Gives endpoints of other worlds' processes a table of their own. osc/ucx has one table of
 * endpoints, by the rank of a process in its MPI_COMM_WORLD: processes of several worlds with one
 * rank would share an entry, and a high rank would be behind the end. Does nothing in Open MPI 4.1,
 * which keeps the endpoint in each process's structure. */
void redirect_endpoints_of_worlds(const MpiTarget &target);

}  // namespace gpushm::openmpi
