// SPDX-License-Identifier: BSD-3-Clause
// MPI_Fetch_and_op and MPI_Compare_and_swap with origin, compare and result buffers in GPU memory.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Open MPI reads and writes these single elements by the CPU; the application's calls get elements
 * in host memory instead, and results go to the GPU with the call that completes the operation. */
void redirect_one_sided_calls(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
