// SPDX-License-Identifier: BSD-3-Clause
// A library that uses MPI, to be loaded after MPI_Init (looked_up.cpp): by its name it tells each
// function of MPI that it calls, as the loader has bound it.
#include <mpi.h>

#include <cstring>

extern "C" int MPIX_Query_cuda_support();  // of mpi-ext.h, which is Open MPI's alone

namespace {

struct Named {
    const char *name;
    void *function;
};

#define NAMED(name) \
    { #name, reinterpret_cast < void *>(&name) }

const Named functions[] = {
    NAMED(MPI_Op_create),           NAMED(MPI_Op_free),          NAMED(MPI_Allreduce),
    NAMED(MPI_Win_create),          NAMED(MPI_Win_fence),        NAMED(MPI_Win_free),
    NAMED(MPI_Fetch_and_op),        NAMED(MPI_Compare_and_swap), NAMED(MPI_File_open),
    NAMED(MPI_File_write_at_all),   NAMED(MPI_File_read_at_all), NAMED(MPI_File_close),
    NAMED(MPIX_Query_cuda_support),
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void *function_of_mpi(const char *name) {
    for (const Named &function : functions) {
        if (std::strcmp(function.name, name) == 0) {
            return function.function;
        }
    }
    return nullptr;
}
