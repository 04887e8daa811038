// SPDX-License-Identifier: BSD-3-Clause
// How the plugin is entered from Open MPI.
#include "core/base/no_throw.hpp"
#include "openmpi/setup/attachment.hpp"

/** Called by the hook component, which lies in another library (hook_component.cpp). */
extern "C" __attribute__((visibility("default"))) void gpushm_become_default() {
    gpushm::as_possible(
        [] { gpushm::openmpi::become_default(); });  // else Open MPI goes on without us
}
