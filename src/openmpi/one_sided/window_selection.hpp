// SPDX-License-Identifier: BSD-3-Clause
// Which component of Open MPI serves a window: osc/ucx, and so gpushm, where one of its processes
// uses CUDA, otherwise the one that Open MPI takes without gpushm (doc/design/one-sided.md).
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** To be called before Open MPI opens the components for windows: osc/ucx will be among them,
 * unless the user has chosen otherwise, and before all others where nothing is decided for a
 * window. */
void prepare_window_components(const OpenMpiLibrary &library);

/** The same for an Open MPI in which decide_for_windows() is not called: osc/ucx serves all windows
 * that it can. */
void prefer_ucx_for_windows(const OpenMpiLibrary &library);

/** Decides from now on, if osc/ucx is loaded and the user has not. `component`: what has just been
 * loaded; null: osc/ucx may be a part of Open MPI's library. */
void decide_for_windows(const OpenMpiLibrary &library, void *component);

/** Whether another component than osc/ucx serves `window`, for none of its processes used CUDA when
 * it was made: one that touches buffers by the CPU. */
bool is_left_to_others(const void *window);

/** `window` is about to be freed. */
void forget_window(const void *window);

}  // namespace gpushm::openmpi
