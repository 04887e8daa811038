// SPDX-License-Identifier: BSD-3-Clause
// Collective operations on buffers in GPU memory: reductions, and small exchanges.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Small blocking reductions, MPI_Allgather and MPI_Alltoall go by way of host memory
 * (small_collectives.hpp). While other reductions work on GPU memory, what Open MPI allocates for
 * parts of the result is GPU memory, too, from 8 KiB on: those parts come from other GPUs and are
 * combined there, and never pass through the host. Which messages are sent does not change in
 * either case, so that each rank decides for itself. */
void redirect_collective_calls(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
