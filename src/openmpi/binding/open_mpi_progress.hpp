// SPDX-License-Identifier: BSD-3-Clause
// Open MPI's progress function, for code that waits inside of a call of MPI.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Call once, before make_progress(). False: this Open MPI has no such function. */
bool find_progress(const OpenMpiLibrary &library);

/** Makes progress in all of Open MPI, including operations of other processes with this one. */
void make_progress();

}  // namespace gpushm::openmpi
