// SPDX-License-Identifier: BSD-3-Clause
// What gpushm does in a process that runs Open MPI, beside being a transport of its UCX.
#pragma once

namespace gpushm::openmpi {

/** If this process runs an Open MPI that has no CUDA of its own, makes those of its functions that touch
 *  buffers by the CPU work on GPU memory: derived datatypes, reductions, files. Done once, in the first call
 *  that finds Open MPI; nothing else happens in other processes. UCX_GPUSHM_OPENMPI=n in the environment
 *  prevents it. Thread safe. */
void attach();

}  // namespace gpushm::openmpi
