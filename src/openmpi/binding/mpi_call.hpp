// SPDX-License-Identifier: BSD-3-Clause
// Calls of MPI's functions by the application, its Fortran bindings and libraries on top of MPI.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <string>

namespace gpushm::openmpi {

// Error classes of Open MPI (ompi/include/mpi.h.in), the same in all versions.
constexpr int kMpiSuccess = 0;
constexpr int kMpiErrorOther = 16;
constexpr int kMpiErrorNoMemory = 39;

/** Has calls of Open MPI's PMPI_<name> and MPI_<name> go to `replacement`, however they come to it;
 * `*original` is what does the work then. A profiling tool that stands before either keeps its
 * place, and what it calls comes to us. Where the function itself cannot be changed
 * (core/patching/function_redirection.hpp), `redirection` changes its callers: those that look it
 * up by dlsym are not reached then. False when this Open MPI has no such function. */
bool redirect_mpi_function(const OpenMpiLibrary &library, CallRedirection *redirection,
                           const std::string &name, void **original, void *replacement);

}  // namespace gpushm::openmpi
