// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI in this process: its libraries, and where their internal structures keep what we
// need.
#pragma once

#include "core/patching/function_redirection.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

/** The libraries of the Open MPI that is loaded. */
class OpenMpiLibrary {
public:
    /** Whether there is one; `*library` is it then. Opens nothing that is not loaded. */
    static bool find(OpenMpiLibrary *library);

    /** A function of libopen-pal, or of libmpi; null when it is not exported. */
    void *opal(const char *name) const;
    void *mpi(const char *name) const;

    /** A symbol of either as the loader binds it for everybody; null when it is not exported. A
     * variable that the program names (MPI_SUM, MPI_COMM_WORLD) may lie in the program itself, and
     * all libraries use that one (R_X86_64_COPY of the System V ABI, AMD64 supplement). */
    void *as_bound(const char *name) const;

    /** A function as calls of it are bound: a profiling tool may stand before Open MPI's. Where a
     * program that is not loaded anywhere (no PIE) has taken its address, as_bound() is a stub in
     * the program ("Function Addresses" in that supplement); this is what lies behind it. */
    void *as_called(const char *name) const;

    /** As opal() and mpi(), with the type of the function pointer to be filled. What is called by
     * that pointer is Open MPI's function also where its calls are redirected to one of ours
     * (core/patching/function_redirection.hpp). */
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
