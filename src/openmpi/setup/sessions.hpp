// SPDX-License-Identifier: BSD-3-Clause
// Jobs that pml/ucx cannot serve: those with sessions of MPI 4, where it makes no communicator from
// a group (ompi_comm_nextcid asks for extended context ids), and those that outlive the failure of
// a process.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** While Open MPI initialises: whether MPI_Session_init has it do so, and not MPI_Init. */
bool begins_with_session(const OpenMpiLibrary &library);

/** While Open MPI initialises: whether the job is to outlive the failure of a process (mpirun
 * --with-ft), which pml/ucx neither notices nor ends communication for. */
bool tolerates_faults(const OpenMpiLibrary &library);

/** Where MPI_Init has chosen UCX, MPI_Comm_create_from_group and MPI_Intercomm_create_from_groups
 * make their communicator out of MPI_COMM_WORLD from now on. To be called once. */
void redirect_session_calls(const OpenMpiLibrary &library, CallRedirection *redirection);

/** Where Open MPI has not chosen UCX, one line says why Open MPI refuses windows in GPU memory. To
 * be called once. */
void explain_refused_windows(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
