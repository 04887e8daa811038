// SPDX-License-Identifier: BSD-3-Clause
// The accelerator framework of Open MPI 5.0 and later, in builds that have only its null component.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Whether this Open MPI handles GPU memory itself, because it was built with CUDA or ROCm. */
bool has_own_accelerator(const OpenMpiLibrary &library);

/** Puts gpushm's functions into the framework's table: Open MPI 5.0 and 6.0 then use them to
 * identify and copy GPU memory (MPI_Pack, files, nonblocking collectives), and
 * MPIX_Query_cuda_support() returns 1. Does nothing, logged as debug, if the framework is missing
 * or has an unknown layout. May be called again. */
void fill_accelerator_table(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
