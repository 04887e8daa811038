// SPDX-License-Identifier: BSD-3-Clause
#include "own_work.hpp"

#include <mpi.h>

namespace gpushm::perf {
namespace {

constexpr unsigned kThreads = 256;  // of a block
constexpr size_t kRow = 4096;
constexpr size_t kElement = 8;
constexpr size_t kElements = 500;  // of a column
constexpr size_t kLarge = size_t{1} << 20;

/** A row, or a column. */
CUDA_MEMCPY2D halo_copy(char *from, char *to, bool column) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = device_pointer(from);
    copy.srcPitch = kRow;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = device_pointer(to);
    copy.dstPitch = kRow;
    copy.WidthInBytes = column ? kElement : kRow;
    copy.Height = column ? kElements : 1;
    return copy;
}

}  // namespace

OwnWork::OwnWork(const Driver &driver) : driver_(driver), kernel_(driver) {
    driver_.require(driver_.cuStreamCreate(&blocking_, CU_STREAM_DEFAULT), "cuStreamCreate");
    driver_.require(driver_.cuStreamCreate(&non_blocking_, CU_STREAM_NON_BLOCKING),
                    "cuStreamCreate");
    driver_.require(driver_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

OwnWork::~OwnWork() {
    driver_.cuEventDestroy(event_);
    driver_.cuStreamDestroy(non_blocking_);
    driver_.cuStreamDestroy(blocking_);
}

CUstream OwnWork::stream_of(const StepCell &cell) const {
    if (cell.wait == Wait::overlap) {
        return non_blocking_;
    }
    return cell.wait == Wait::context || cell.own_copy_count != 0 ? nullptr : blocking_;
}

void OwnWork::launch(const StepCell &cell) {
    kernel_.launch(stream_of(cell), cell.kernel_us, 1, kThreads);
    if (cell.wait == Wait::event) {
        driver_.require(driver_.cuEventRecord(event_, stream_of(cell)), "cuEventRecord");
    }
}

void OwnWork::wait(const StepCell &cell) {
    CUresult result = CUDA_SUCCESS;
    switch (cell.wait) {
        case Wait::context:
            result = driver_.cuCtxSynchronize();
            break;
        case Wait::stream:
        case Wait::overlap:
            result = driver_.cuStreamSynchronize(stream_of(cell));
            break;
        case Wait::event:
            result = driver_.cuEventSynchronize(event_);
            break;
        case Wait::query:
            while ((result = driver_.cuStreamQuery(stream_of(cell))) == CUDA_ERROR_NOT_READY) {
                int there;
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
            }
            break;
    }
    driver_.require(result, "the application's kernel");
}

void OwnWork::copy(const StepCell &cell, char *message, char *other) const {
    for (unsigned i = 0; i < cell.own_copy_count; ++i) {
        CUresult result = CUDA_SUCCESS;
        if (cell.own_copies == OwnCopies::rows) {
            const CUDA_MEMCPY2D what = halo_copy(message, other, i % 2 != 0);
            result = driver_.cuMemcpy2D(&what);
        } else if (cell.own_copies == OwnCopies::memsets) {
            result =
                driver_.cuMemsetD8(device_pointer(message + kOwnBytes / 2 + i * kRow), 0, kRow);
        } else {
            result = driver_.cuMemcpyDtoD(device_pointer(other), device_pointer(message), kLarge);
        }
        driver_.require(result, "a copy of the application's own");
    }
}

}  // namespace gpushm::perf
