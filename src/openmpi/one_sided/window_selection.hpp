// SPDX-License-Identifier: BSD-3-Clause
// Selects the component of Open MPI that serves a window: osc/ucx, and so gpushm, if one of the
// window's processes uses CUDA; otherwise the component that Open MPI selects without gpushm
// (doc/design/one-sided.md).
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Call before Open MPI opens its components for windows. Makes sure that osc/ucx is one of them,
 * and the first choice if nothing else is decided, unless the user has set something else. */
void prepare_window_components(const OpenMpiLibrary &library);

/** Call instead of prepare_window_components() if decide_for_windows() is not called: osc/ucx then
 * serves all windows that it can serve. */
void prefer_ucx_for_windows(const OpenMpiLibrary &library);

/** Decides for each window from now on, if osc/ucx is loaded and the user has not decided.
 * `component`: a component that was just loaded; null: osc/ucx may be built into Open MPI's
 * library. */
void decide_for_windows(const OpenMpiLibrary &library, void *component);

/** Whether a component other than osc/ucx serves `window`, because none of its processes used CUDA
 * when it was created. That component accesses buffers with the CPU. */
bool is_left_to_others(const void *window);

/** `window` is about to be freed. */
void forget_window(const void *window);

}  // namespace gpushm::openmpi
