// SPDX-License-Identifier: BSD-3-Clause
// Replacements of MPI's collective operations, for buffers in GPU memory: reductions and small
// exchanges.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** Runs small reductions, MPI_Allgather, MPI_Alltoall and MPI_Scatter in host memory
 * (small_collectives.hpp). During other reductions of GPU memory, temporary buffers of 8 KiB and
 * more that Open MPI allocates are in GPU memory as well, so that parts of the result never pass
 * through the host. The messages that are sent do not change in either case, so each rank decides
 * for itself. */
void redirect_collective_calls(const MpiTarget &target);

}  // namespace gpushm::openmpi
