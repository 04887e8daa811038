// SPDX-License-Identifier: BSD-3-Clause
// Reductions that are collective, of buffers in GPU memory.
#pragma once

#include "openmpi/call_redirection.hpp"
#include "openmpi/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** While MPI_Allreduce and the like work on GPU memory, what Open MPI allocates for parts of the result is GPU memory, too,
 *  from staging_limit() and 64 KiB on: those parts come from other GPUs and are combined there, and never pass through the host. Which
 *  messages are sent does not change, so that each rank decides for itself. */
void redirect_collective_calls(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
