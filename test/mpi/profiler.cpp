// SPDX-License-Identifier: BSD-3-Clause
// A profiling tool: it stands before a function of MPI, and says when it is called.
#include <mpi.h>

#include <cstdio>

extern "C" __attribute__((visibility("default"))) int MPI_Op_create(MPI_User_function* function,
                                                                    int commutes, MPI_Op* op)
{
    std::printf("profiler: MPI_Op_create\n");
    return PMPI_Op_create(function, commutes, op);
}
