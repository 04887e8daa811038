// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/driver_copies.hpp"

#include "core/base/log.hpp"
#include "core/copy/reduction_launch.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/copy/stream_calls.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/pinning/segment_table.hpp"

#include <algorithm>

namespace gpushm {
namespace {

/** Launches the kernel that does `what`; false: nothing runs. */
bool launch(const GpuContext &context, const CopyStream &stream, const KernelLaunch &kernel,
            const char *what) {
    const CUresult result = launch_kernel(context, stream, kernel);
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "the kernel that %s could not be launched (%s)", what,
                   CudaDriver::get()->error_name(result));
    }
    return result == CUDA_SUCCESS;
}

/** False: nothing runs. */
bool launch_copies(const GpuContext &context, const CopyStream &stream, CopyBatch &batch) {
    batch.list = std::make_unique<RowCopyList>(batch.copies.size());
    if (!batch.list->has_room()) {
        return false;
    }
    for (const BatchedCopy &copy : batch.copies) {
        batch.list->add(row_copy(copy.destination, copy.source, copy.length, copy.rows));
    }
    const bool runs = launch(context, stream, batch.list->launch(), "copies many pieces");
    if (!runs) {
        batch.list.reset();
    }
    return runs;
}

/** Whether one call can submit all copies. */
bool fits_one_call(const CopyBatch &batch) {
    return batch.copies.size() > 1 && batch.copies.size() <= kCopiesPerBatch &&
           CudaDriver::get()->has_memcpy_batch() &&
           std::all_of(batch.copies.begin(), batch.copies.end(), [](const BatchedCopy &copy) {
               return copy.rows.count == 1 && !copy.failed;
           });
}

/** Submits all copies with one call; false: nothing runs. A driver that refuses does not say which
 * copy it refuses, nor whether others run. */
bool submit_by_one_call(const GpuContext &context, const CopyStream &stream,
                        const CopyBatch &batch) {
    const CudaDriver *driver = CudaDriver::get();
    CUdeviceptr destinations[kCopiesPerBatch];
    CUdeviceptr sources[kCopiesPerBatch];
    size_t lengths[kCopiesPerBatch];
    for (size_t i = 0; i < batch.copies.size(); ++i) {
        destinations[i] = device_pointer(batch.copies[i].destination);
        sources[i] = device_pointer(batch.copies[i].source);
        lengths[i] = batch.copies[i].length;
    }
    const CUresult result = context.call([&] {
        return driver->memcpy_batch(destinations, sources, lengths, batch.copies.size(),
                                    stream.handle);
    });
    if (result != CUDA_SUCCESS) {
        context.call([&] { return driver->stream_synchronize(stream.handle); });
    }
    return result == CUDA_SUCCESS;
}

}  // namespace

CUresult submit_copy(const GpuContext &context, const CopyStream &stream, const BatchedCopy &copy) {
    const OwnCopies own;
    return retry_once([&] { return context.call([&] { return copy.submit(stream.handle); }); });
}

bool submit_copies(const GpuContext &context, const CopyStream &stream, CopyBatch &batch) {
    if (batch.reduction) {
        return launch(context, stream, reduction_launch(&*batch.reduction), "reduces what arrives");
    }
    if (batch.by_kernel && launch_copies(context, stream, batch)) {
        return true;
    }
    if (fits_one_call(batch) && submit_by_one_call(context, stream, batch)) {
        return true;
    }
    bool runs = false;
    for (BatchedCopy &copy : batch.copies) {
        if (copy.failed) {
            continue;
        }
        const CUresult result = submit_copy(context, stream, copy);
        copy.failed = result != CUDA_SUCCESS;
        runs |= !copy.failed;
        if (copy.failed) {
            log_copy_failure(copy.rows.count > 1 ? "cuMemcpy2DAsync" : "cuMemcpyAsync",
                             copy.bytes(), result);
        }
    }
    return runs;
}

CUresult launch_kernel(const GpuContext &context, const CopyStream &stream,
                       const KernelLaunch &launch) {
    const CUfunction function =
        context.kernels != nullptr ? context.kernels->function(launch.kernel) : nullptr;
    const bool possible =
        function != nullptr &&
        (launch.host_memory == nullptr || SegmentTable::instance().ensure_pinned(
                                              launch.host_memory, context.handle(), context.id()));
    if (!possible) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const OwnCopies own;
    void *parameters[] = {launch.parameters};
    return context.call([&] {
        return CudaDriver::get()->launch_kernel(function, launch.blocks, launch.blocks_y, 1,
                                                launch.threads, 1, 1, 0, stream.handle, parameters,
                                                nullptr);
    });
}

}  // namespace gpushm
