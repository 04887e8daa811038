// SPDX-License-Identifier: BSD-3-Clause
// Reduction operations of the application (MPI_Op_create), whose functions expect host memory.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Has the functions of operations that are created from now on called with copies in host memory
 * where a buffer is in GPU memory. */
void redirect_user_operations(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
