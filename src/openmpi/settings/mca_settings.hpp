// SPDX-License-Identifier: BSD-3-Clause
// Sets and removes the parameters of mca_defaults.hpp in the environment of this process.
#pragma once

#include "openmpi/settings/mca_defaults.hpp"

namespace gpushm::openmpi {

/** Whether the user has set the parameter, in the environment (also by mpirun --mca) or in a file
 * of the user. A value that gpushm has set, perhaps in the process that started this one, does not
 * count. */
bool is_the_users(const McaDefault &parameter);

/** Sets the parameter if it is not set. */
void set_default(const McaDefault &parameter);

/** Sets the parameters for messages that the user has not set. Windows are decided later
 * (window_selection.hpp). */
void set_defaults();

/** Removes the parameters that set_defaults() or gpushm-run has set: Open MPI then selects its
 * components as without gpushm. */
void cancel_defaults();

}  // namespace gpushm::openmpi
