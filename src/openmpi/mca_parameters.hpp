// SPDX-License-Identifier: BSD-3-Clause
// What the MCA of an Open MPI that initialises has, and what its user has set.
#pragma once

#include "openmpi/open_mpi_library.hpp"

#include <string>

namespace gpushm::openmpi {

/** Whether there is a component mca_<framework>_<name>, built in or in a folder where this Open MPI looks. True also
 *  where that cannot be found out. To be called when the MCA has read its parameters. */
bool has_component(const OpenMpiLibrary &library, const std::string &framework, const std::string &name);

/** Whether the environment (also by mpirun --mca) or the user's own ~/.openmpi/mca-params.conf sets it. Not asked is
 *  the file of the installation, in which distributions exclude UCX. */
bool is_set_by_user(const std::string &parameter);

}  // namespace gpushm::openmpi
