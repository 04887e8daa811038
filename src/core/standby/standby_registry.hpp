// SPDX-License-Identifier: BSD-3-Clause
// The standby kernels of the process.
#pragma once

#include "core/cuda/by_context.hpp"
#include "core/standby/standby_demand.hpp"
#include "core/standby/standby_kernel.hpp"

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace gpushm {

/** Thread safe. */
class StandbyKernels {
public:
    static StandbyKernels &instance();

    /** For ForkSafe: a forked child has no kernels. */
    void begin_in_child();

    /** Takes effect for contexts that are prepared later. The first caller decides. */
    void configure(const StandbyConfig &config);

    /** Makes the kernel of a context ready (StandbyKernel::load); does nothing when there is one.
     */
    void prepare(CUcontext context);
    /** The kernel of a context; null when there is none: it is switched off, or the driver or the
     * build lacks what it needs, or the context was not prepared. `id` is
     * CudaDriver::context_id(). */
    std::shared_ptr<StandbyKernel> find(CUcontext context, unsigned long long id);

    /** A peer copies for this process on `device`, the GPU of `context`: its kernel is wanted
     * there, not ours. */
    void leave_to_peer(CUcontext context, CUdevice device);

    /** To be called again and again by threads that wait for messages or copies. Costs a load while
     * no kernel is wanted. */
    void tend(StandbyKernel::Moment moment) {
        if (wanted()) {
            tend_all(moment);
        }
    }
    /** While one lives, no kernel is launched. Kernels that run have left, or were told to leave
     * and did not within `patience_ns`. For calls of the driver that wait for all work of a GPU. */
    class Absence {
    public:
        /** More than twice as long as a running kernel needs to see that it is to leave. A kernel
         * does not see it while its GPU works for another process. */
        static constexpr uint64_t kPatienceNs = 5000;

        explicit Absence(uint64_t patience_ns = kPatienceNs)
            : complete_(instance().begin_absence(patience_ns)) {}
        /** No kernel is there: kernels of no context read or write anything any more. */
        bool complete() const { return complete_; }
        ~Absence() { StandbyDemand::instance().end_absence(); }
        Absence(const Absence &) = delete;
        Absence &operator=(const Absence &) = delete;

    private:
        const bool complete_;
    };

    /** Whether a kernel runs, or will where a thread waits. */
    static bool wanted() { return StandbyDemand::instance().wanted(); }

    /** Writes to the debug output what the kernels did so far. */
    void log_use();

private:
    bool possible() const;
    void tend_all(StandbyKernel::Moment moment);
    bool begin_absence(uint64_t patience_ns);

    std::mutex mutex_;
    StandbyConfig config_;
    bool configured_ = false;
    // With those of contexts that have ended since the last prepare().
    ByContext<StandbyKernel> kernels_;
};

}  // namespace gpushm
