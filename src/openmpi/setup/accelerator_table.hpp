// SPDX-License-Identifier: BSD-3-Clause
// The accelerator framework of Open MPI 5.0 and later, in builds that have only its null component.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Whether this Open MPI handles GPU memory by itself: built with CUDA or ROCm. */
bool has_own_accelerator(const OpenMpiLibrary &library);

/** Lets Open MPI 5.0 and 6.0 ask us about addresses and have us copy, which serves the places where
 * it asks (MPI_Pack, files, nonblocking collectives), and makes MPIX_Query_cuda_support() answer 1.
 * Nothing where there is no such framework, or one of another shape, which is said in one line of
 * debug output, and nothing that is done already. */
void fill_accelerator_table(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
