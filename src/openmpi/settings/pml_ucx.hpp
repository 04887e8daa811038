// SPDX-License-Identifier: BSD-3-Clause
// The UCX that Open MPI would send through.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

#include <string>

namespace gpushm::openmpi {

/** Why Open MPI cannot send through UCX and gpushm: it has no pml/ucx, or one with a UCX that
 * gpushm does not serve; what to do stands behind a colon. Empty when it can, and when that cannot
 * be found out. Loads that UCX. To be called when the MCA has read its parameters. */
std::string why_not_through_ucx(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
