// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/copy_batch.hpp"

#include "core/copy/host_rows.hpp"
#include "core/copy/reachability.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/standby/gpu_sharing.hpp"

namespace gpushm {
namespace {

CUresult copy_rows(const BatchedCopy &copy, CUstream stream) {
    CUDA_MEMCPY2D rows = {};
    rows.srcMemoryType = copy.source_on_gpu ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    rows.srcDevice = device_pointer(copy.source);
    rows.srcHost = copy.source;
    rows.srcPitch = copy.rows.source_pitch;
    rows.dstMemoryType = copy.destination_on_gpu ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    rows.dstDevice = device_pointer(copy.destination);
    rows.dstHost = copy.destination;
    rows.dstPitch = copy.rows.destination_pitch;
    rows.WidthInBytes = copy.length;
    rows.Height = copy.rows.count;
    return CudaDriver::get()->memcpy_2d_async(&rows, stream);
}

/** Rows do not cross the border of two registrations. */
bool is_locked_by_program(const CopyJob &job, CopyOperand &source) {
    const MemoryInfo &info = source.info();
    return info.kind == MemoryKind::pinned && covers(info, job.source, job.length) &&
           covers(job.gpu_side, job.destination, job.length);
}

/** Whether the engine that runs kernels would copy it, and wait for those of other processes. */
bool is_for_copy_engine(const CopyJob &job, CopyOperand &source) {
    return job.direction == CopyDirection::to_gpu && job.length <= kMostByKernelEngine &&
           GpuSharing::instance().kernels_wait(job.gpu_side.device) &&
           (is_from_host(job, source) || is_locked_by_program(job, source));
}

}  // namespace

BatchedCopy batched(const CopyJob &job, CopyOperands &operands) {
    BatchedCopy copy = {job.destination, job.source, job.length, job.rows};
    copy.source_id = job.source_may_go ? job.gpu_side.buffer_id : 0;
    copy.other_side = job.other_side;
    copy.source_may_be_unmapped = job.source_may_be_unmapped;
    if (job.rows.count > 1) {
        copy.destination_on_gpu = !job.to_host && operands.destination.info().needs_gpu();
        copy.source_on_gpu = !job.from_host && operands.source.info().needs_gpu();
    } else if (is_for_copy_engine(job, operands.source)) {
        leave_to_copy_engine(&copy);
    }
    return copy;
}

CUresult BatchedCopy::submit(CUstream stream) const {
    return rows.count > 1 ? copy_rows(*this, stream)
                          : CudaDriver::get()->memcpy_async(device_pointer(destination),
                                                            device_pointer(source), length, stream);
}

void leave_to_copy_engine(BatchedCopy *copy) {
    copy->rows.count = rows_for_copy_engine(copy->length);
    copy->length /= copy->rows.count;
    copy->rows.destination_pitch = copy->rows.source_pitch = copy->length;
    copy->destination_on_gpu = true;
}

void CopyBatch::clear() {
    copies.clear();
    bytes = 0;
    joint_bytes = 0;
    event = nullptr;
    by_kernel = false;
    list.reset();
    reduction.reset();
    done = false;
    is_refused = false;
}

void CopyBatch::drop_gone() {
    for (BatchedCopy &copy : copies) {
        copy.failed = copy.source_id != 0 && query_memory(copy.source).buffer_id != copy.source_id;
    }
}

/** The program may have freed it by a cudaFree that sent the standby kernel away, if the message
 * was given up (a forced close). A kernel that is launched now would touch what is not there. */
bool CopyBatch::has_lost_memory() const {
    return gpu_side_id != 0 && query_memory(gpu_side).buffer_id != gpu_side_id;
}

bool CopyBatch::is_within_gpu() const {
    const BatchedCopy &copy = copies.front();
    if (direction != CopyDirection::to_gpu || copy.other_side == OtherSide::elsewhere ||
        copy.rows.count > 1) {
        return false;
    }
    if (copy.other_side == OtherSide::same_gpu) {
        return true;
    }
    const MemoryInfo destination = query_memory(copy.destination);
    return is_of_gpu(destination, copy.destination, copy.length) &&
           is_of_same_gpu(destination, query_memory(copy.source), copy.source, copy.length);
}

std::shared_ptr<CopyBatch> new_batch(std::shared_ptr<CopyBatch> &last_done) {
    if (last_done.use_count() != 1) {
        return std::make_shared<CopyBatch>();
    }
    last_done->clear();
    return std::move(last_done);
}

}  // namespace gpushm
