// SPDX-License-Identifier: BSD-3-Clause
// Reduction operations of the application (MPI_Op_create). Their functions expect host memory.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** From now on, functions of created operations are called with copies in host memory in place of
 * buffers in GPU memory. */
void redirect_user_operations(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
