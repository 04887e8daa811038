// SPDX-License-Identifier: BSD-3-Clause
// MPI_SUM and the other predefined reduction operations, for GPU memory too.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Puts functions of ours before those with which Open MPI reduces; they give it host memory where
 * a buffer is in GPU memory. One line of warning, and nothing changed, where Open MPI's tables are
 * not as expected; nothing where Open MPI has not filled them yet. To be called again whenever it
 * may have filled them. */
void replace_predefined_operations(const OpenMpiLibrary &library);

/** Whether GPUs compute the predefined operation, an MPI_Op, of this MPI_Datatype. */
bool gpus_compute(const void *operation, const void *datatype);

}  // namespace gpushm::openmpi
