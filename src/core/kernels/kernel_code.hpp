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

/** A Cancellation (cancellable_copy_kernel.hpp) in the memory of a GPU, and what it says while its
 * stream is empty. */
struct CancellationSlot {
    CUdeviceptr address = 0;
    uint32_t number = 0;  // the last one that a copy had
    uint32_t begun = 0;
    uint32_t cancelled = 0;
};

enum class Kernel { standby, standby_cluster, copy_rows, reduce, cancellable_copy };

/** That of one context. Never unloaded: it ends with the context. Thread safe. */
class KernelCode {
public:
    /** Milliseconds. Waits for all work of the context, and meanwhile every other call of the
     * driver for that context waits too (driver 580): only for a context in which no kernel can
     * wait for a message. */
    void load(CUcontext context);

    /** Null when the code was not loaded or could not be, or lacks this kernel (standby_cluster).
     */
    CUfunction function(Kernel kernel) const {
        return loaded_.load(std::memory_order_acquire) ? functions_[static_cast<size_t>(kernel)]
                                                       : nullptr;
    }

    /** One that nobody else has; none when all are taken, or the code was not loaded. */
    std::optional<CancellationSlot> take_cancellation() const;
    /** Its stream is empty. */
    void give_back_cancellation(const CancellationSlot &slot) const;

private:
    std::once_flag once_;
    std::atomic<bool> loaded_{false};
    mutable std::mutex cancellations_mutex_;
    mutable std::vector<CancellationSlot> free_cancellations_;
    CUfunction functions_[5] = {};  // by Kernel; constant once loaded
};

/** Those of the process. Thread safe. */
class KernelCodes {
public:
    static KernelCodes &instance();

    /** The build has code, and the driver takes it. */
    static bool possible();

    /** That of a context, loaded by the first caller; null when it is not possible(). `id`:
     * CudaDriver::context_id(). */
    std::shared_ptr<const KernelCode> load(CUcontext context, unsigned long long id);

    /** What load() has made; null: nothing yet. */
    std::shared_ptr<const KernelCode> find(CUcontext context, unsigned long long id);

private:
    std::mutex mutex_;
    ByContext<KernelCode> codes_;  // with those of contexts that have ended since the last load()
};

/** CUDA_LAUNCH_BLOCKING: a launch returns when the kernel has ended. */
bool launches_are_synchronous();

/** Whether it is there in the context of device memory `gpu_side`; false for other memory. Thread
 * safe. */
bool has_kernel(const MemoryInfo &gpu_side, Kernel kernel);

}  // namespace gpushm
