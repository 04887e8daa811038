// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine: one launch that copies many pieces, and kernels that callers launch.
#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/copy/driver_copies.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/copy/standby_policy.hpp"
#include "core/copy/stream_calls.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/reclaim/context_lifetime.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace gpushm {

static_assert(kMaxKernelJobs <= RowCopyList::kMax);

namespace {

/** Microseconds. Measured: doc/decisions/copy-many-pieces.md. */
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

const Costs &costs_of(const CopyJob &job, CopyOperands &operands) {
    if (job.peer_extent != 0) {
        return kBetweenGpus;
    }
    if (job.from_host || operands.source.info().kind != MemoryKind::device) {
        return kFromHost;
    }
    if (job.to_host || operands.destination.info().kind != MemoryKind::device) {
        return kToHost;
    }
    return operands.source.info().device == operands.destination.info().device ? kWithinGpu
                                                                               : kBetweenGpus;
}

/** Microseconds in which a copy engine looks up the pages of a peer's memory in which the rows lie.
 * Measured: doc/decisions/copy-many-pieces.md. */
double page_lookups(const CopyJob &job) {
    constexpr size_t kPage = 64u << 10;
    constexpr size_t kKnownPages = 256;
    constexpr double kLookup = 0.015;
    const size_t pages = std::min(job.rows.count, job.peer_extent / kPage);
    return pages > kKnownPages ? static_cast<double>(pages) * kLookup : 0;
}

/** How long copies that start together take, in microseconds. */
struct Estimate {
    double copy_engine = 0;
    double kernel = 0;

    void add(const CopyJob &job, CopyOperands &operands) {
        const Costs &costs = costs_of(job, operands);
        const auto rows = static_cast<double>(job.rows.count);
        const double bytes = rows * static_cast<double>(job.length);
        const bool first = kernel == 0;
        copy_engine += first                 ? costs.engine_start
                       : job.rows.count == 1 ? costs.engine_single
                                             : kOneMoreRowsCall;
        copy_engine +=
            std::max({rows * costs.engine_row, bytes * costs.engine_byte, page_lookups(job)});
        kernel += (first ? costs.kernel_start : 0) +
                  std::max(rows * costs.kernel_row, bytes * costs.kernel_byte);
    }
};

/** Whether the kernel can count the words of the copy. */
bool is_countable(const CopyJob &job) {
    return words_of(row_copy(job.destination, job.source, job.length, job.rows)) <=
           kMaxRowCopyWords;
}

}  // namespace

/** Page-locks segments of ours, too. */
bool CopyEngine::kernel_can_copy(const CopyJob &job, Means &means) {
    return is_countable(job) && find_means(job, &means) &&
           (job.in_reach || kernels_reach_both(job, means, false));
}

bool CopyEngine::start_by_kernel(const std::vector<CopyJob> &jobs,
                                 std::vector<CopyTicket> *tickets) {
    Scope scope(*this);
    Estimate estimate;
    std::vector<Means> means;
    means.reserve(jobs.size());
    for (const CopyJob &job : jobs) {
        estimate.add(job, means.emplace_back(job).operands);
    }
    if (estimate.copy_engine < estimate.kernel || !find_means(jobs.front(), &means.front())) {
        return false;
    }
    const KernelCode *kernels = means.front().context->kernels.get();
    if (kernels == nullptr) {
        return false;
    }
    // Until the list has its own.
    const ContextLifetimeLock contexts_alive(ContextLifetimeLock::Mode::alive_shared);
    if (!contexts_alive) {
        return false;
    }
    // For kernels_reach().
    const CurrentContext current(CudaDriver::get(), means.front().context->handle());
    bool possible = kernels->function(Kernel::copy_rows) != nullptr;
    for (size_t i = 0; possible && i < jobs.size(); ++i) {
        possible = kernel_can_copy(jobs[i], means[i]);
    }
    // The first job's context may have ended meanwhile.
    GpuContext *context = possible ? find_context(jobs.front()) : nullptr;
    CopyStream *stream =
        context != nullptr ? find_stream(*context, 0, jobs.front().direction) : nullptr;
    if (stream == nullptr) {
        return false;
    }
    const std::shared_ptr<CopyBatch> batch = new_batch(stream->last_done);
    batch->copies.reserve(jobs.size());
    tickets->reserve(tickets->size() + jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
        batch->copies.push_back(batched(jobs[i], means[i].operands));
    }
    batch->by_kernel = true;
    const bool submitted = submit_new(*context, *stream, batch);
    for (size_t index = 0; submitted && index < jobs.size(); ++index) {
        tickets->push_back({batch, index});
    }
    if (submitted && jobs.size() <= kMostCopiesOfRows) {
        for (size_t i = 0; i < jobs.size(); ++i) {
            means[i].context = context;
            note_for_standby(jobs[i], means[i]);
        }
    }
    return submitted;
}

bool CopyEngine::start_reduction(const CopyJob &job, const ReductionParameters &reduction,
                                 CopyTicket *ticket) {
    Scope scope(*this);
    GpuContext *context = find_context(job);
    if (context == nullptr || context->kernels == nullptr) {
        return false;
    }
    relax_capture();
    CopyStream *stream = context->stream_for_reductions();
    if (stream == nullptr) {
        return false;
    }
    const std::shared_ptr<CopyBatch> batch = new_batch(stream->last_done);
    batch->copies.push_back({job.destination, job.source, job.length, job.rows});
    batch->reduction = reduction;
    if (!submit_new(*context, *stream, batch) || batch->is_refused) {
        return false;
    }
    *ticket = {batch, 0};
    return true;
}

bool CopyEngine::is_in_reach(const MemoryInfo &gpu_side, const void *address, size_t length) {
    Scope scope(*this);
    const CopyJob job = {const_cast<void *>(address), address, length, gpu_side,
                         CopyDirection::to_gpu};
    Means means(job);
    if (!find_means(job, &means)) {
        return false;
    }
    const CurrentContext current(CudaDriver::get(), means.context->handle());
    return kernels_reach_both(job, means, false);
}

KernelsEnd CopyEngine::run(const MemoryInfo &gpu_side, const std::vector<KernelLaunch> &launches) {
    Scope scope(*this);
    GpuContext *context = find_context({nullptr, nullptr, 0, gpu_side, CopyDirection::to_gpu});
    const CopyStream *stream =
        context != nullptr ? find_stream(*context, 0, CopyDirection::to_gpu) : nullptr;
    if (stream == nullptr) {
        return KernelsEnd::refused;
    }
    size_t launched = 0;
    CUresult result = CUDA_SUCCESS;
    while (launched < launches.size() && result == CUDA_SUCCESS) {
        result = launch_kernel(*context, *stream, launches[launched]);
        launched += result == CUDA_SUCCESS ? 1 : 0;
    }
    // Also when one was refused: others may run.
    CUresult ended = CUDA_SUCCESS;
    if (launched != 0) {
        ended = retry_once(
            [&] { return wait_for_stream(context->handle(), context->id(), stream->handle); });
        result = ended != CUDA_SUCCESS ? ended : result;
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

}  // namespace gpushm
