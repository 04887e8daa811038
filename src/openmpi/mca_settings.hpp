// SPDX-License-Identifier: BSD-3-Clause
// The parameters of mca_defaults.hpp in the environment of this process.
#pragma once

#include "openmpi/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Sets those that the user has not set (UserParameters), for components that this Open MPI has: it ends when it is
 *  asked for another one. */
void set_defaults(const OpenMpiLibrary &library);

/** Takes back those that set_defaults() or gpushm-run has set, so that Open MPI chooses as without gpushm. */
void withdraw_defaults();

/** Whether the user has said what Open MPI sends through. */
bool user_chooses_pml();

}  // namespace gpushm::openmpi
