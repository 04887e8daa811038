// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/open_mpi_progress.hpp"

namespace gpushm::openmpi {
namespace {

int (*progress)() =
    nullptr;  // opal_progress (opal/runtime/opal_progress.h); in 4.1 it returns nothing

}  // namespace

bool find_progress(const OpenMpiLibrary &library) {
    return library.opal("opal_progress", &progress);
}

void make_progress() {
    progress();
}

}  // namespace gpushm::openmpi
