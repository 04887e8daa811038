// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI in this process: its libraries, and where their internal structures keep what we need.
#pragma once

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

    /** A variable of either; null when it is not exported. A program that names it (MPI_SUM, MPI_COMM_WORLD) may
     *  have been linked so that it lies in the program itself (R_X86_64_COPY of the System V ABI, AMD64
     *  supplement), and all libraries use that one. */
    void *variable(const char *name) const;

    /** As opal() and mpi(), with the type of the function pointer to be filled. */
    template <typename Function>
    bool opal(const char *name, Function *function) const {
        *function = reinterpret_cast<Function>(opal(name));
        return *function != nullptr;
    }
    template <typename Function>
    bool mpi(const char *name, Function *function) const {
        *function = reinterpret_cast<Function>(mpi(name));
        return *function != nullptr;
    }

    /** "4.1.4", or "of unknown version". */
    const char *version() const;

private:
    void *opal_ = nullptr;
    void *mpi_ = nullptr;
};

}  // namespace gpushm::openmpi
