// SPDX-License-Identifier: BSD-3-Clause
// Jobs that pml/ucx cannot serve: jobs with sessions of MPI 4, because it creates no communicators
// from groups (ompi_comm_nextcid needs extended context ids), and jobs that survive the failure of
// a process.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Whether MPI_Session_init initialises Open MPI, and not MPI_Init. Call it during the
 * initialisation. */
bool begins_with_session(const OpenMpiLibrary &library);

/** Whether the job has to survive the failure of a process (mpirun --with-ft). pml/ucx neither
 * notices a failure nor ends communication with the process. Call it during the initialisation. */
bool tolerates_faults(const OpenMpiLibrary &library);

/** From now on, if MPI_Init has selected UCX, MPI_Comm_create_from_group and
 * MPI_Intercomm_create_from_groups create their communicators from MPI_COMM_WORLD. Call once. */
void redirect_session_calls(const MpiTarget &target);

/** From now on, if Open MPI has not selected UCX, logs why it refuses windows in GPU memory. Call
 * once. */
void explain_refused_windows(const MpiTarget &target);

}  // namespace gpushm::openmpi
