// SPDX-License-Identifier: BSD-3-Clause
// The parameters of mca_defaults.hpp in the environment of this process.
#pragma once

#include "openmpi/settings/mca_defaults.hpp"

namespace gpushm::openmpi {

/** Whether the user has set a parameter, or another process than gpushm has: a process that the job
 * starts finds in its environment what gpushm has set there. */
bool is_the_users(const McaDefault &parameter);

/** Sets it if nobody else has. */
void set_default(const McaDefault &parameter);

/** Sets those of messages that the user has not set (UserParameters). What serves a window is
 * decided later (window_selection.hpp). */
void set_defaults();

/** Takes back those that set_defaults() or gpushm-run has set, so that Open MPI chooses as without
 * gpushm. */
void cancel_defaults();

/** Whether the user has said what Open MPI sends through. */
bool user_chooses_pml();

}  // namespace gpushm::openmpi
