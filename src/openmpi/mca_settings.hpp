// SPDX-License-Identifier: BSD-3-Clause
// The parameters of mca_defaults.hpp in the environment of this process.
#pragma once

namespace gpushm::openmpi {

/** Sets those of messages that the user has not set (UserParameters). What serves a window is decided later
 *  (window_selection.hpp). */
void set_defaults();

/** Takes back those that set_defaults() or gpushm-run has set, so that Open MPI chooses as without gpushm. */
void withdraw_defaults();

/** Whether the user has said what Open MPI sends through. */
bool user_chooses_pml();

}  // namespace gpushm::openmpi
