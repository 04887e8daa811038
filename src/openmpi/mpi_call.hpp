// SPDX-License-Identifier: BSD-3-Clause
// Calls of MPI's functions by the application, its Fortran bindings and libraries on top of MPI.
#pragma once

#include "openmpi/call_redirection.hpp"
#include "openmpi/open_mpi_library.hpp"

#include <string>

namespace gpushm::openmpi {

// Error classes of Open MPI (ompi/include/mpi.h.in), the same in all versions.
constexpr int kMpiSuccess = 0;
constexpr int kMpiErrorOther = 16;
constexpr int kMpiErrorNoMemory = 39;

/** Has calls of MPI_<name> and PMPI_<name> go to `replacement`; `*original` is what they reach in Open MPI. A
 *  profiling tool that stands before either keeps its place; what it calls by a linked PMPI_<name> comes to us,
 *  what it has looked up by dlsym does not. False when this Open MPI has no such function. */
template <typename Function>
bool redirect_mpi_call(const OpenMpiLibrary &library, CallRedirection *redirection,
                       const std::string &name, Function *original, Function replacement) {
    const std::string profiled = "PMPI_" + name;
    if (!library.mpi(profiled.c_str(), original)) {
        return false;
    }
    for (const char *symbol : {profiled.c_str(), profiled.c_str() + 1}) {
        void *const ours = library.mpi(symbol);
        if (library.as_called(symbol) == ours) {
            redirection->add_function(symbol, ours, reinterpret_cast<void *>(replacement));
        }
    }
    return true;
}

}  // namespace gpushm::openmpi
