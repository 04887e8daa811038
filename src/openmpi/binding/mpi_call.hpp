// SPDX-License-Identifier: BSD-3-Clause
// Calls of MPI's functions by the application, its Fortran bindings and libraries on top of MPI.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <string>

namespace gpushm::openmpi {

// Error classes (ompi/include/mpi.h.in of Open MPI 4.1, 5.0 and 6.0).
constexpr int kMpiSuccess = 0;
constexpr int kMpiErrorOther = 16;
constexpr int kMpiErrorNoMemory = 39;

/** Redirects all calls of Open MPI's PMPI_<name> and MPI_<name> to `replacement`. `*original`
 * becomes a function that does the original work. Profiling tools keep their place, and their calls
 * are redirected. If the function itself cannot be changed
 * (core/patching/function_redirection.hpp), `redirection` changes its callers, except those that
 * find it with dlsym. False: this Open MPI has no such function. */
bool redirect_mpi_function(const OpenMpiLibrary &library, CallRedirection *redirection,
                           const std::string &name, void **original, void *replacement);

}  // namespace gpushm::openmpi
