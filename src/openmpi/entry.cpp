// SPDX-License-Identifier: BSD-3-Clause
// How the plugin is entered from Open MPI.
#include "openmpi/attachment.hpp"

#include <exception>

/** Called by the hook component, which lies in another library (hook_component.cpp). */
extern "C" __attribute__((visibility("default"))) void gpushm_become_default() {
    try {
        gpushm::openmpi::become_default();
    } catch (const std::exception &) {
        // Out of memory: Open MPI goes on without us.
    }
}
