// SPDX-License-Identifier: BSD-3-Clause
// The UCX through which Open MPI would send messages.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

#include <string>

namespace gpushm::openmpi {

/** Why Open MPI cannot send through UCX and gpushm, with what to do behind a colon: it has no
 * pml/ucx, or gpushm does not serve its UCX. Empty: it can, or the answer cannot be found. Loads
 * that UCX. Call it when the MCA has read its parameters. */
std::string why_not_through_ucx(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
