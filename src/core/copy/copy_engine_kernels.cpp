// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine's kernels: copies of many pieces, and others that callers launch.
#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/reclaim/context_lifetime.hpp"

#include <algorithm>
#include <memory>

namespace gpushm {

static_assert(kMaxKernelJobs <= RowCopyList::kMax);

namespace {

/** Microseconds, measured on two H200 (NVLink, PCIe 5) with 16 B to 1 MB in rows of 8 bytes to 64
 * KB. */
struct Costs {
    double engine_start;   // one call until the host knows that it ended
    double engine_single;  // one more copy of one row, in a batch
    double engine_row;     // where rows are short
    double engine_byte;
    double kernel_start;
    double kernel_row;
    double kernel_byte;
};
constexpr double kOneMoreRowsCall = 2.5;  // cuMemcpy2DAsync

constexpr Costs kWithinGpu = {9.3, 3.8, 0.5e-3, 1.2e-6, 9.6, 0.02e-3, 0.35e-6};
constexpr Costs kBetweenGpus = {8.2, 0.7, 0.33e-3, 2.65e-6, 10.3, 0.05e-3, 2.75e-6};
constexpr Costs kFromHost = {7.7, 1.0, 1.8e-3, 18.5e-6, 11, 0.33e-3, 19.5e-6};
constexpr Costs kToHost = {7.7, 0.6, 1.3e-3, 18.5e-6, 10.5, 2e-3, 19.5e-6};

const Costs &costs_of(const CopyJob &job) {
    const MemoryInfo source = query_memory(job.source);
    const MemoryInfo destination = query_memory(job.destination);
    if (source.kind != MemoryKind::device) {
        return kFromHost;
    }
    if (destination.kind != MemoryKind::device) {
        return kToHost;
    }
    return source.device == destination.device ? kWithinGpu : kBetweenGpus;
}

/** How long copies that start together take. */
struct Estimate {
    double copy_engine = 0;
    double kernel = 0;

    void add(const CopyJob &job) {
        const Costs &costs = costs_of(job);
        const auto rows = static_cast<double>(job.rows.count);
        const double bytes = rows * static_cast<double>(job.length);
        const bool first = kernel == 0;
        copy_engine += first                 ? costs.engine_start
                       : job.rows.count == 1 ? costs.engine_single
                                             : kOneMoreRowsCall;
        copy_engine += std::max(rows * costs.engine_row, bytes * costs.engine_byte);
        kernel += (first ? costs.kernel_start : 0) +
                  std::max(rows * costs.kernel_row, bytes * costs.kernel_byte);
    }
};

}  // namespace

/** Ensures that page-locked memory is, too. */
bool CopyEngine::kernel_can_copy(const CopyJob &job) {
    Means means;
    return words_of(row_copy(job.destination, job.source, job.length, job.rows)) <=
               kMaxRowCopyWords &&
           find_context(job, &means) && (job.in_reach || kernels_reach_both(job, means, false));
}

bool CopyEngine::start_by_kernel(const std::vector<CopyJob> &jobs,
                                 std::vector<CopyTicket> *tickets) {
    Scope scope(*this);
    Estimate estimate;
    for (const CopyJob &job : jobs) {
        estimate.add(job);
    }
    Means means;
    if (estimate.copy_engine < estimate.kernel || !find_context(jobs.front(), &means) ||
        means.context->kernels == nullptr) {
        return false;
    }
    const ContextLifetimeLock contexts_alive(
        ContextLifetimeLock::Mode::alive_shared);  // until the list has its own
    if (!contexts_alive) {
        return false;
    }
    const CurrentContext current(CudaDriver::get(), means.handle);  // for kernels_reach()
    const auto can_copy = [this](const CopyJob &job) { return kernel_can_copy(job); };
    const bool possible =
        means.context->kernels->function(Kernel::copy_rows) != nullptr &&
        std::all_of(jobs.begin(), jobs.end(), can_copy) &&
        find_context(jobs.front(), &means);  // that of before may have ended meanwhile
    Stream *stream =
        possible ? find_stream(means.handle, *means.context, 0, jobs.front().direction) : nullptr;
    if (stream == nullptr) {
        return false;
    }
    const std::shared_ptr<CopyBatch> batch = new_batch(stream->last_done);
    batch->copies.reserve(jobs.size());
    tickets->reserve(tickets->size() + jobs.size());
    for (const CopyJob &job : jobs) {
        batch->copies.push_back({job.destination, job.source, job.length, job.rows});
    }
    batch->by_kernel = true;
    ++under_way_;
    const bool submitted =
        as_possible([&] { submit(means.handle, *means.context, *stream, batch); });
    under_way_ -= submitted ? 0 : 1;
    for (size_t index = 0; submitted && index < jobs.size(); ++index) {
        tickets->push_back({batch, index});
    }
    return submitted;
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
    return kernels_reach_both(job, means, false);
}

/** What the kernel reads of host memory is page-locked before. */
CUresult CopyEngine::launch(CUcontext handle, const Context &context, const Stream &stream,
                            const KernelLaunch &launch) {
    const CUfunction function =
        context.kernels != nullptr ? context.kernels->function(launch.kernel) : nullptr;
    const bool possible = function != nullptr && (launch.host_memory == nullptr ||
                                                  SegmentTable::instance().ensure_pinned(
                                                      launch.host_memory, handle, context.life.id));
    void *parameters[] = {launch.parameters};
    return possible
               ? in_context(handle, context.life.id,
                            [&] {
                                return CudaDriver::get()->launch_kernel(
                                    function, launch.blocks, launch.blocks_y, 1, launch.threads, 1,
                                    1, 0, stream.handle, parameters, nullptr);
                            })
               : CUDA_ERROR_NOT_SUPPORTED;
}

KernelsEnd CopyEngine::run(const MemoryInfo &gpu_side, const std::vector<KernelLaunch> &launches) {
    Scope scope(*this);
    Means means;
    const Stream *stream =
        find_context({nullptr, nullptr, 0, gpu_side, CopyDirection::to_gpu}, &means)
            ? find_stream(means.handle, *means.context, 0, CopyDirection::to_gpu)
            : nullptr;
    if (stream == nullptr) {
        return KernelsEnd::refused;
    }
    size_t launched = 0;
    CUresult result = CUDA_SUCCESS;
    while (launched < launches.size() && result == CUDA_SUCCESS) {
        result = launch(means.handle, *means.context, *stream, launches[launched]);
        launched += result == CUDA_SUCCESS ? 1 : 0;
    }
    // Also when one was refused: others may run.
    CUresult ended = CUDA_SUCCESS;
    if (launched != 0 && !tried_twice([&] {
            ended = wait_for_stream(means.handle, means.context->life.id, stream->handle);
            return ended == CUDA_SUCCESS;
        })) {
        result = ended;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) {
        GPUSHM_LOG(error,
                   "a GPU kernel of gpushm failed (%s): see whether the application freed a buffer "
                   "too early or one of its kernels faulted (compute-sanitizer)",
                   CudaDriver::get()->error_name(result));
    }
    return ended != CUDA_SUCCESS    ? KernelsEnd::unknown
           : result != CUDA_SUCCESS ? KernelsEnd::refused
                                    : KernelsEnd::ran;
}

/** False: nothing runs. */
bool CopyEngine::launch_copies(CUcontext handle, const Context &context, const Stream &stream,
                               CopyBatch &batch) {
    batch.list = std::make_unique<RowCopyList>(batch.copies.size());
    if (!batch.list->has_room()) {
        return false;
    }
    for (const BatchedCopy &copy : batch.copies) {
        batch.list->add(row_copy(copy.destination, copy.source, copy.length, copy.rows));
    }
    const CUresult result = launch(handle, context, stream, batch.list->launch());
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(debug, "the kernel that copies many pieces could not be launched (%s)",
                   CudaDriver::get()->error_name(result));
        batch.list.reset();
    }
    return result == CUDA_SUCCESS;
}

}  // namespace gpushm
