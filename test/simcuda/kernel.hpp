// SPDX-License-Identifier: BSD-3-Clause
// Kernels: the simulation runs no device code, it has host functions for the kernels that it knows
// by name.
#pragma once

#include "context.hpp"
#include "copy.hpp"

#include <cstdint>
#include <string>

namespace simcuda {

struct Kernel {
    const char *name;
    bool fills_device;            // runs only while no other kernel of the device does
    std::size_t parameter_bytes;  // of its only parameter, which is passed by value

    // What it does, in a thread of its own. Called with the lock held, which it lets go of most of
    // the time. A failure becomes the context's sticky error.
    CUresult (*run)(Lock &lock, Context &context, const void *parameter);
};

// Null if the simulation has no kernel of that name.
const Kernel *find_kernel(const std::string &name);

// Bytes of the variable of that name which modules have in device memory; 0 if there is none.
std::size_t global_bytes(const std::string &name);

// Memory as a kernel in the context reaches it: CUDA_ERROR_ILLEGAL_ADDRESS, which ends the kernel,
// if it does not.
CUresult find_kernel_memory(std::uintptr_t address, std::size_t bytes, bool writes,
                            const Context &context, Span *span);

// Waits a little, for kernels that ask again and again whether something has changed. False if the
// kernel has to end because another failure took its context away.
bool kernel_may_poll(const Context &context);

// kStandbyKernelName and kStandbyClusterName, see standby_kernel.cpp.
CUresult run_standby(Lock &lock, Context &context, const void *parameter);

// kRowCopyKernelName, see row_copy_kernel.cpp.
CUresult run_row_copies(Lock &lock, Context &context, const void *parameter);

// kCancellableCopyKernelName, see cancellable_copy_kernel.cpp.
CUresult run_cancellable_copy(Lock &lock, Context &context, const void *parameter);

// kReductionKernelName, see reduction_kernel.cpp.
CUresult run_reduction(Lock &lock, Context &context, const void *parameter);

}  // namespace simcuda
