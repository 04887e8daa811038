// SPDX-License-Identifier: BSD-3-Clause
// What gpushm does in a process that runs Open MPI, beside being a transport of its UCX.
#pragma once

namespace gpushm::openmpi {

/** If this process runs an Open MPI that has no CUDA of its own, makes those of its functions that
 * touch buffers by the CPU work on GPU memory: derived datatypes, reductions. Where there is no
 * CUDA driver, only windows are seen to, which other processes may have a part in. Nothing happens
 * in other processes. To be called when UCX opens a memory domain and when it opens an interface:
 * the first comes before Open MPI loads its collectives, the second when it has set up its
 * operations. UCX_GPUSHM_OPENMPI=n in the environment prevents it. Thread safe. */
void attach();

/** Called while Open MPI initialises, before it chooses its components, by the hook component
 * (hook_component.cpp) and by the preload library (ucp_hooks/preload.cpp): has it send through UCX,
 * and UCX load gpushm. What the user has set stays. Where that cannot be (a session of MPI 4, a UCX
 * that gpushm does not serve) what gpushm-run has set in the environment is taken back, so that the
 * program runs as without gpushm. UCX_GPUSHM_OPENMPI=n prevents the first, not the second. May be
 * called again. Thread safe. */
void become_default();

}  // namespace gpushm::openmpi
