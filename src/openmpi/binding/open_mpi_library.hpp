// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI in this process: its libraries and their symbols.
#pragma once

#include "core/patching/function_redirection.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace gpushm::openmpi {

/** A dlopen() handle of a loaded library whose file name begins with one of `names`; null: there is
 * none. */
void *open_loaded_library(std::initializer_list<const char *> names);

/** The file of the library that has `symbol`. "": none has. */
std::string file_of(void *symbol);

/** The libraries of the Open MPI that is loaded. */
class OpenMpiLibrary {
public:
    /** Finds the loaded Open MPI; false: there is none. Loads no library. */
    static bool find(OpenMpiLibrary *library);

    /** Whether Open MPI is initialised, or has come so far that it opens UCX (opal_initialized of
     * opal/runtime/opal_init.c; equal in 4.1, 5.0 and 6.0). MPI_T alone does not count: before, the
     * MCA parameters may not be there, and Open MPI has not selected what it has for GPUs. */
    bool is_in_use() const;

    /** A function of libopen-pal or of libmpi; null: it is not exported. */
    void *opal(const char *name) const;
    void *mpi(const char *name) const;

    /** A symbol of either library as the loader binds it for all objects; null: it is not exported.
     * A variable that the program names (MPI_SUM, MPI_COMM_WORLD) may be in the program itself, and
     * all libraries use that copy (R_X86_64_COPY of the System V ABI, AMD64 supplement). */
    void *as_bound(const char *name) const;

    /** The function that calls of `name` reach, which may be that of a profiling tool. Unlike
     * as_bound() it is never a stub in the program: as_bound() is one if a program without PIE has
     * taken the function's address ("Function Addresses" in that supplement). */
    void *as_called(const char *name) const;

    /** opal() and mpi() for a typed function pointer. The pointer calls Open MPI's own function,
     * also if calls of that are redirected to gpushm (core/patching/function_redirection.hpp). */
    template <typename Function>
    bool opal(const char *name, Function *function) const {
        *function = reinterpret_cast<Function>(opal(name));
        return *function != nullptr;
    }
    template <typename Function>
    bool mpi(const char *name, Function *function) const {
        void *const found = mpi(name);
        *function =
            reinterpret_cast<Function>(found != nullptr ? original_function(found) : nullptr);
        return *function != nullptr;
    }

    /** "4.1.4", or "of unknown version". */
    const char *version() const;

private:
    void *opal_ = nullptr;
    void *mpi_ = nullptr;
};

}  // namespace gpushm::openmpi
