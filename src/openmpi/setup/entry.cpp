// SPDX-License-Identifier: BSD-3-Clause
// The entry point of the plugin for Open MPI.
#include "core/base/no_throw.hpp"
#include "openmpi/setup/attachment.hpp"

/** Called by the hook component (hook_component.cpp) and the preload library
 * (ucp_hooks/preload.cpp). */
extern "C" __attribute__((visibility("default"))) void gpushm_become_default() {
    gpushm::as_possible([] {
        gpushm::openmpi::become_default();
    });  // without memory, Open MPI goes on without gpushm
}
