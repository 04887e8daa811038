// SPDX-License-Identifier: BSD-3-Clause
// What the replaced functions of Open MPI ask about buffers.
#include "openmpi/binding/gpu_memory.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "openmpi/binding/mpi_call.hpp"

namespace gpushm::openmpi {
namespace {

/** A driver that is there but was never initialised knows no memory. */
bool process_uses_cuda() {
    const CudaDriver *driver = CudaDriver::get();
    CUcontext context;
    return driver != nullptr && driver->ctx_get_current(&context) != CUDA_ERROR_NOT_INITIALIZED;
}

int (*call_errhandler)(void *communicator, int code) = nullptr;
int (*is_initialized)(int *flag) = nullptr;
int (*is_finalized)(int *flag) = nullptr;
void *comm_world = nullptr;

/** Open MPI 6.0 makes it in MPI_Init; a program may have sessions only. */
bool has_comm_world() {
    int initialized = 0;
    int finalized = 0;
    return call_errhandler != nullptr && is_initialized(&initialized) == kMpiSuccess &&
           is_finalized(&finalized) == kMpiSuccess && initialized != 0 && finalized == 0;
}

}  // namespace

bool is_gpu_memory(const void *address) {
    return address != nullptr && gpu_copies(query_memory(address), address, 1);
}

bool is_gpu_memory(const OpalDatatype &datatype, const void *base) {
    if (base == nullptr) {
        return process_uses_cuda();
    }
    return is_gpu_memory(static_cast<const char *>(base) + datatype.true_lower_bound());
}

thread_local unsigned FailureWatch::reported_ = 0;

namespace {

void call_error_handler(int code) {
    FailureWatch::note();
    if (has_comm_world()) {
        call_errhandler(comm_world, code);
    }
}

}  // namespace

int report_no_memory(const char *operation) {
    GPUSHM_LOG(error, "no host memory for %s a buffer in GPU memory, its data are lost", operation);
    call_error_handler(kMpiErrorNoMemory);
    return -2;  // OPAL_ERR_OUT_OF_RESOURCE
}

int report_want_of_memory_to_mpi() {
    report_want_of_memory();
    call_error_handler(kMpiErrorNoMemory);
    return kMpiErrorNoMemory;
}

void report_lost(const char *operation) {
    GPUSHM_LOG(error,
               "%s of a buffer in GPU memory failed, its data are lost: see the message before "
               "this one",
               operation);
    call_error_handler(kMpiErrorOther);
}

bool copy_or_report(const std::vector<CopyPiece> &pieces, const char *operation) {
    if (copy_pieces(pieces) == Status::ok) {
        return true;
    }
    report_lost(operation);
    return false;
}

void set_error_reporting(const OpenMpiLibrary &library) {
    comm_world = library.as_bound("ompi_mpi_comm_world");
    if (comm_world != nullptr && library.mpi("PMPI_Initialized", &is_initialized) &&
        library.mpi("PMPI_Finalized", &is_finalized)) {
        library.mpi("PMPI_Comm_call_errhandler", &call_errhandler);
    }
}

}  // namespace gpushm::openmpi
