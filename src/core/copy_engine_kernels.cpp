// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine's kernels: copies of many pieces, and others that callers launch.
#include "core/copy_batch.hpp"
#include "core/log.hpp"
#include "core/row_copy_kernel.hpp"

#include <algorithm>

namespace gpushm {

static_assert(kMostKernelJobs <= kMostRowCopies);

namespace {

RowCopy row_copy(const BatchedCopy &copy) {
    return {device_pointer(copy.destination), device_pointer(copy.source), copy.length,
            copy.rows.count, copy.rows.destination_pitch, copy.rows.source_pitch};
}

uint64_t words_of(const RowCopy &copy) { return copy.length / word_bytes(copy) * copy.rows; }

/** What a GPU can have under way at once, so that blocks begin as others end. */
unsigned blocks_for(uint64_t most_words, size_t copies) {
    constexpr uint64_t kWordsPerBlock = 4 * kRowCopyThreads;
    constexpr uint64_t kMostBlocks = 2048;
    const uint64_t wanted = (most_words + kWordsPerBlock - 1) / kWordsPerBlock;
    return static_cast<unsigned>(std::clamp<uint64_t>(wanted, 1, kMostBlocks / copies));
}

/** How long the copies take, in microseconds: measured on H200 for single copies and for launches of a copy kernel,
 *  assumed for rows by the copy engine and for bytes between GPUs. */
struct Estimate {
    double copy_engine = 6.5;
    double kernel = 8.3;

    void add(const CopyJob &job, bool from_host) {
        constexpr double kSingle = 0.65;   // in a batch
        constexpr double kRowsCall = 2.5;  // cuMemcpy2DAsync
        constexpr double kRow = 0.01;
        constexpr double kHostByte = 130e-6;  // loads of page-locked memory
        constexpr double kGpuByte = 4e-6;
        const auto rows = static_cast<double>(job.rows.count);
        copy_engine += job.rows.count == 1 ? kSingle : kRowsCall + rows * kRow;
        kernel += rows * static_cast<double>(job.length) * (from_host ? kHostByte : kGpuByte);
    }
};

}  // namespace

/** Ensures that page-locked memory is, too. */
bool CopyEngine::kernel_can_copy(const CopyJob &job) {
    Means means;
    return words_of(row_copy({job.destination, job.source, job.length, job.rows})) <=
               kMostRowCopyWords &&
           find_context(job, &means) && kernels_reach_both(job, means);
}

bool CopyEngine::start_by_kernel(const std::vector<CopyJob> &jobs,
                                 std::vector<CopyTicket> *tickets) {
    Scope scope(*this);
    Estimate estimate;
    for (const CopyJob &job : jobs) {
        estimate.add(job, query_memory(job.source).kind != MemoryKind::device);
    }
    Means means;
    if (estimate.copy_engine < estimate.kernel || !find_context(jobs.front(), &means) ||
        means.context->kernels == nullptr) {
        return false;
    }
    const CUfunction kernel = means.context->kernels->function(Kernel::copy_rows);
    const CurrentContext current(CudaDriver::get(), means.handle);  // for kernels_reach()
    const auto can_copy = [this](const CopyJob &job) { return kernel_can_copy(job); };
    Stream *stream = kernel != nullptr && std::all_of(jobs.begin(), jobs.end(), can_copy)
                         ? find_stream(means.handle, *means.context, 0, jobs.front().direction)
                         : nullptr;
    if (stream == nullptr) {
        return false;
    }
    const std::shared_ptr<CopyBatch> batch = new_batch(stream->last_done);
    for (const CopyJob &job : jobs) {
        tickets->push_back({batch, batch->copies.size()});
        batch->copies.push_back({job.destination, job.source, job.length, job.rows});
    }
    batch->kernel = kernel;
    ++under_way_;
    submit(means.handle, *means.context, *stream, batch);
    return true;
}

bool CopyEngine::is_in_reach(const MemoryInfo &gpu_side, const void *address, size_t length) {
    Scope scope(*this);
    const CopyJob job = {const_cast<void *>(address), address, length, gpu_side,
                         CopyDirection::to_gpu};
    Means means;
    if (!find_context(job, &means)) {
        return false;
    }
    const CurrentContext current(CudaDriver::get(), means.handle);
    return kernels_reach_both(job, means);
}

Status CopyEngine::run(const MemoryInfo &gpu_side, const KernelLaunch &launch) {
    Scope scope(*this);
    Means means;
    const Stream *stream =
        find_context({nullptr, nullptr, 0, gpu_side, CopyDirection::to_gpu}, &means)
            ? find_stream(means.handle, *means.context, 0, CopyDirection::to_gpu)
            : nullptr;
    const CUfunction function = stream != nullptr && means.context->kernels != nullptr
                                    ? means.context->kernels->function(launch.kernel)
                                    : nullptr;
    if (function == nullptr) {
        return Status::gpu_error;
    }
    const CudaDriver *driver = CudaDriver::get();
    void *parameters[] = {launch.parameters};
    CUresult result = in_context(means.handle, [&] {
        return driver->launch_kernel(function, launch.blocks, 1, 1, launch.threads, 1, 1, 0,
                                     stream->handle, parameters, nullptr);
    });
    if (result == CUDA_SUCCESS) {
        result = wait_for_stream(means.handle, stream->handle);
    }
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(error, "a GPU kernel failed (%s)", driver->error_name(result));
    }
    return result == CUDA_SUCCESS ? Status::ok : Status::gpu_error;
}

/** False: nothing runs. */
bool CopyEngine::launch_copies(CUcontext handle, const Stream &stream, const CopyBatch &batch) {
    RowCopies copies;
    copies.count = batch.copies.size();
    uint64_t most_words = 0;
    for (size_t i = 0; i < batch.copies.size(); ++i) {
        copies.copy[i] = row_copy(batch.copies[i]);
        most_words = std::max(most_words, words_of(copies.copy[i]));
    }
    void *parameters[] = {&copies};
    const CUresult result = in_context(handle, [&] {
        return CudaDriver::get()->launch_kernel(
            batch.kernel, blocks_for(most_words, batch.copies.size()),
            static_cast<unsigned>(batch.copies.size()), 1, kRowCopyThreads, 1, 1, 0, stream.handle,
            parameters, nullptr);
    });
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "the kernel that copies many pieces could not be launched (%s)",
                   CudaDriver::get()->error_name(result));
    }
    return result == CUDA_SUCCESS;
}

}  // namespace gpushm
