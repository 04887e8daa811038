// SPDX-License-Identifier: BSD-3-Clause
// A profiling tool: it stands before a function of MPI, and says when it is called. It passes on by
// the function's other name, or (profiler_next) by what the loader finds next.
#include <mpi.h>

#include <dlfcn.h>

#include <cstdio>

namespace {

auto next_create() {
#ifdef PASSES_ON_BY_DLSYM
    return reinterpret_cast<decltype(&MPI_Op_create)>(dlsym(RTLD_NEXT, "MPI_Op_create"));
#else
    return &PMPI_Op_create;
#endif
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int MPI_Op_create(MPI_User_function *function,
                                                                    int commutes, MPI_Op *op) {
    std::printf("profiler: MPI_Op_create\n");
    return next_create()(function, commutes, op);
}
