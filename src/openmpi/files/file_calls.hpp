// SPDX-License-Identifier: BSD-3-Clause
// MPI's file operations with buffers in GPU memory.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Gives MPI-IO copies in host memory, since files are read and written by system calls, which know
 * nothing of GPU memory. Nonblocking operations on GPU memory end before they return. */
void redirect_file_calls(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
