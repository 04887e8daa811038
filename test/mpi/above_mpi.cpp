// SPDX-License-Identifier: BSD-3-Clause
// A library that needs MPI's, to be loaded before a profiling tool (profiler.cpp).
#include <mpi.h>

extern "C" __attribute__((visibility("default"))) double now() {
    return MPI_Wtime();
}
