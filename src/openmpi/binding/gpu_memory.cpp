// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/gpu_memory.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/mpi_world.hpp"

namespace gpushm::openmpi {
namespace {

/** A driver that the process has not initialised knows no memory. */
bool process_uses_cuda() {
    const CudaDriver *driver = CudaDriver::get();
    CUcontext context;
    return driver != nullptr && driver->ctx_get_current(&context) != CUDA_ERROR_NOT_INITIALIZED;
}

int (*call_errhandler)(void *communicator, int code) = nullptr;

}  // namespace

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
    if (call_errhandler != nullptr && has_world()) {
        call_errhandler(comm_world(), code);
    }
}

}  // namespace

int report_no_memory(const char *operation) {
    GPUSHM_LOG(error,
               "cannot allocate host memory for %s a buffer in GPU memory, whose data are lost: "
               "use smaller messages or raise the memory limit",
               operation);
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
               "%s of a buffer in GPU memory failed, and its data are lost: see the message before "
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
    if (find_world(library)) {
        library.mpi("PMPI_Comm_call_errhandler", &call_errhandler);
    }
}

}  // namespace gpushm::openmpi
