// SPDX-License-Identifier: BSD-3-Clause
// Open MPI's progress, for what waits inside one of its calls.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** To be called once, before make_progress(). False when this Open MPI has no such function. */
bool find_progress(const OpenMpiLibrary &library);

/** Everything that Open MPI waits for goes on, that of other processes with this one included. */
void make_progress();

}  // namespace gpushm::openmpi
