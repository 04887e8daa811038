// SPDX-License-Identifier: BSD-3-Clause
// The code of our kernels in the contexts of the process.
#pragma once

#include "core/cuda/by_context.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_info.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace gpushm {

/** A Cancellation (cancellable_copy_kernel.hpp) in the memory of a GPU, and the contents that it
 * has while its stream is empty. */
struct CancellationSlot {
    CUdeviceptr address = 0;
    uint32_t number = 0;  // of the last copy
    uint32_t begun = 0;
    uint32_t cancelled = 0;
};

enum class Kernel { standby, standby_cluster, copy_rows, reduce, cancellable_copy };
constexpr size_t kKernelCount = 5;

/** The code in one context. It is never unloaded, but ends with the context. Thread safe. */
class KernelCode {
public:
    /** Loads the code, once. Takes milliseconds and waits for all work of the context. Meanwhile
     * every other call of the driver for that context waits, too (driver 580). So it is only for a
     * context in which no kernel can be waiting for a message. See
     * doc/decisions/kernels-loading.md. */
    void load(CUcontext context);

    /** Null: the code is not loaded, or lacks this kernel (standby_cluster). */
    CUfunction function(Kernel kernel) const {
        return loaded_.load(std::memory_order_acquire) ? functions_[static_cast<size_t>(kernel)]
                                                       : nullptr;
    }

    /** A slot that nobody else has. None: all are taken, or the code is not loaded. */
    std::optional<CancellationSlot> take_cancellation() const;
    /** The stream of the slot is empty. */
    void give_back_cancellation(const CancellationSlot &slot) const;

private:
    std::once_flag once_;
    std::atomic<bool> loaded_{false};
    mutable std::mutex cancellations_mutex_;
    mutable std::vector<CancellationSlot> free_cancellations_;
    CUfunction functions_[kKernelCount] = {};  // by Kernel; constant once loaded
};

/** The code in all contexts of the process. Thread safe. */
class KernelCodes {
public:
    static KernelCodes &instance();

    /** Whether the build has code and the driver has the functions that it needs. */
    static bool possible();

    /** The code in a context, which the first caller loads. Null: it is not possible(). `id` is
     * CudaDriver::context_id(). */
    std::shared_ptr<const KernelCode> load(CUcontext context, unsigned long long id);

    /** What load() has made. Null: nothing yet. */
    std::shared_ptr<const KernelCode> find(CUcontext context, unsigned long long id);

private:
    std::mutex mutex_;
    ByContext<KernelCode> codes_;  // with those of contexts that have ended since the last load()
};

/** Whether CUDA_LAUNCH_BLOCKING is set: a launch returns when the kernel has ended. */
bool launches_are_synchronous();

/** Whether `kernel` is loaded in the context of the device memory `gpu_side`. False for other
 * memory. Thread safe. */
bool has_kernel(const MemoryInfo &gpu_side, Kernel kernel);

}  // namespace gpushm
