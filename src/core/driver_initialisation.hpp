// SPDX-License-Identifier: BSD-3-Clause
// When the process first uses the CUDA driver.
#pragma once

#include "core/driver_hooks.hpp"

namespace gpushm {

/** True: the process has not initialised CUDA, so it has no memory of a GPU, nor managed memory; before it has,
 *  `begins` is called, once, in the thread that initialises CUDA or makes a context, all others of which wait. It must
 *  not call the driver. False: it has, or that cannot be watched (install_driver_hooks() has to have been called and to
 *  have succeeded, driver_waits_hooked()); `begins` may be called all the same. The first caller's is. Thread safe. */
bool watch_initialisation(PatchFunction patch, void (*begins)());

/** For hooks of functions that make contexts: before the driver does so. */
void note_initialisation();

}  // namespace gpushm
