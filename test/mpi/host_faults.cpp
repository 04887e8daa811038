// SPDX-License-Identifier: BSD-3-Clause
// What a job that outlives the failure of a process (mpirun --with-ft, Open MPI 5.0) does with its
// communicators.
#include "host_programs.hpp"

#include <mpi-ext.h>

namespace gpushm::mpi_test {

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

namespace {

bool is_revoked(MPI_Comm comm) {
    int revoked = 0;
    int error_class = MPI_SUCCESS;
    MPIX_Comm_is_revoked(comm, &revoked);
    MPI_Error_class(MPI_Barrier(comm), &error_class);
    return revoked != 0 && error_class == MPIX_ERR_REVOKED;
}

bool all_are_in(MPI_Comm comm) {
    int size;
    int sum = 0;
    const int one = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum == size;
}

}  // namespace

void run_revoked() {
    MPI_Comm comm;
    MPI_Comm shrunk;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    report(MPI_COMM_WORLD, "before it is revoked", all_are_in(comm));
    MPIX_Comm_revoke(comm);
    report(MPI_COMM_WORLD, "revoked", is_revoked(comm));
    MPIX_Comm_shrink(comm, &shrunk);
    report(MPI_COMM_WORLD, "shrunk", all_are_in(shrunk));
    MPI_Comm_free(&shrunk);
    MPI_Comm_free(&comm);
}

#else

void run_revoked() {}

#endif

}  // namespace gpushm::mpi_test
