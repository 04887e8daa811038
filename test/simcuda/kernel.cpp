// SPDX-License-Identifier: BSD-3-Clause
// The kernels that the simulation knows.
#include "kernel.hpp"

#include "core/kernels/reduction_kernel.hpp"
#include "core/kernels/row_copy_kernel.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/kernels/cancellable_copy_kernel.hpp"
#include "litmus.hpp"
#include "touch_kernel.hpp"

#include <chrono>
#include <cstring>
#include <thread>

namespace simcuda {

namespace {

// Of a kernel that waits for the CPU. In a virtual machine a timer takes some microseconds of
// processor time: with one every 2 us kernels left little of two processors to the processes that
// they work for.
constexpr auto kPollInterval = std::chrono::microseconds(20);

// An application's kernel that takes the whole GPU until the word that its parameter points to is
// not 0.
CUresult run_spin(Lock &lock, Context &context, const void *parameter) {
    CUdeviceptr address = 0;
    std::memcpy(&address, parameter, sizeof(address));
    Span span;
    const CUresult result =
        find_kernel_memory(address, sizeof(std::uint32_t), false, context, &span);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const auto *word = reinterpret_cast<const std::uint32_t *>(span.access());
    lock.unlock();
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0 && kernel_may_poll(context)) {
    }
    lock.lock();
    return CUDA_SUCCESS;
}

// Reads memory, so that managed pages come to the device.
CUresult run_touch(Lock &, Context &context, const void *parameter) {
    TouchedRange range;
    std::memcpy(&range, parameter, sizeof(range));
    Span span;
    return range.bytes == 0 ? CUDA_SUCCESS
                            : find_kernel_memory(range.address, range.bytes, false, context, &span);
}

// The reader of a litmus test, see litmus.hpp.
CUresult run_litmus(Lock &lock, Context &context, const void *parameter) {
    constexpr int kPollsAtATime = 64;
    LitmusParameters parameters;
    std::memcpy(&parameters, parameter, sizeof(parameters));
    Span span;
    const CUresult result = find_kernel_memory(reinterpret_cast<std::uintptr_t>(parameters.litmus),
                                               sizeof(Litmus), true, context, &span);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    LitmusReader reader(parameters);
    lock.unlock();
    for (int polls = 1; reader.poll(); ++polls) {
        if (polls % kPollsAtATime == 0 && !kernel_may_poll(context)) {
            break;
        }
    }
    lock.lock();
    return CUDA_SUCCESS;
}

constexpr Kernel kKernels[] = {
    {gpushm::kStandbyKernelName, false, sizeof(gpushm::StandbyParameters), run_standby},
    {gpushm::kStandbyClusterName, false, sizeof(gpushm::StandbyParameters), run_standby},
    {gpushm::kRowCopyKernelName, false, sizeof(gpushm::RowCopies), run_row_copies},
    {gpushm::kReductionKernelName, false, sizeof(gpushm::ReductionParameters), run_reduction},
    {gpushm::kCancellableCopyKernelName, false, sizeof(gpushm::CancellableCopy),
     run_cancellable_copy},
    {kLitmusKernelName, false, sizeof(LitmusParameters), run_litmus},
    {"simcuda_touch", false, sizeof(TouchedRange), run_touch},
    {"simcuda_spin", true, sizeof(CUdeviceptr), run_spin},
};

}  // namespace

const Kernel *find_kernel(const std::string &name) {
    for (const Kernel &kernel : kKernels) {
        if (name == kernel.name) {
            return &kernel;
        }
    }
    return nullptr;
}

std::size_t global_bytes(const std::string &name) {
    return name == gpushm::kCancellationsName
               ? gpushm::kCancellations * sizeof(gpushm::Cancellation)
               : 0;
}

CUresult find_kernel_memory(std::uintptr_t address, std::size_t bytes, bool writes,
                            const Context &context, Span *span) {
    Access access{*context.device, writes};
    access.kernel_of = &context;
    const CUresult result = Span::make(address, bytes, access, span);
    const bool there = result == CUDA_SUCCESS && span->access() != nullptr;
    return there ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool kernel_may_poll(const Context &context) {
    std::this_thread::sleep_for(kPollInterval);
    return context.sticky_error == CUDA_SUCCESS;
}

}  // namespace simcuda
