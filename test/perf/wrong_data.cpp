// SPDX-License-Identifier: BSD-3-Clause
// Preloaded before MPI: one byte of each message and of each sum of kBytes in host memory is wrong.
#include <mpi.h>

namespace {

constexpr int kBytes = 776;

void spoil(void *data, int bytes) {
    if (bytes == kBytes) {
        static_cast<unsigned char *>(data)[kBytes / 2] ^= 1;
    }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int MPI_Recv(void *data, int count, MPI_Datatype type,
                                                    int source, int tag, MPI_Comm communicator,
                                                    MPI_Status *status) {
    const int result = PMPI_Recv(data, count, type, source, tag, communicator, status);
    spoil(data, type == MPI_CHAR ? count : 0);
    return result;
}

__attribute__((visibility("default"))) int MPI_Allreduce(const void *sent, void *received,
                                                         int count, MPI_Datatype type, MPI_Op op,
                                                         MPI_Comm communicator) {
    const int result = PMPI_Allreduce(sent, received, count, type, op, communicator);
    spoil(received, type == MPI_FLOAT ? count * static_cast<int>(sizeof(float)) : 0);
    return result;
}

}  // extern "C"
