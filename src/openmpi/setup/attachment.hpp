// SPDX-License-Identifier: BSD-3-Clause
// Attaches gpushm to the Open MPI of the process, beyond being a transport of its UCX.
#pragma once

namespace gpushm::openmpi {

/** If the process runs an Open MPI without CUDA, makes its functions that access buffers with the
 * CPU work on GPU memory: derived datatypes, reductions, files, windows. Without a CUDA driver it
 * changes windows only, in which processes with a GPU may take part. Does nothing in other
 * processes, nor outside of MPI_Init to MPI_Finalize. Call it when UCX opens a memory domain, which
 * is before Open MPI loads its collectives, and when UCX opens an interface, which is after Open
 * MPI has set up its operations. UCX_GPUSHM_OPENMPI=n in the environment prevents it. Thread safe.
 */
void attach();

/** Makes Open MPI send through UCX, and UCX load gpushm, except where the user has set something
 * else. If that is not possible (a session of MPI 4, a UCX that gpushm does not serve), removes
 * what gpushm-run has set in the environment, so that the program runs as without gpushm.
 * UCX_GPUSHM_OPENMPI=n prevents the former, not the latter. The hook component (hook_component.cpp)
 * and the preload library (ucp_hooks/preload.cpp) call it while Open MPI initialises, before it
 * selects its components. May be called again. Thread safe. */
void become_default();

}  // namespace gpushm::openmpi
