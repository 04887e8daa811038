// SPDX-License-Identifier: BSD-3-Clause
// What other processes do on a GPU of this process.
#pragma once

#include "core/base/unique_fd.hpp"

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpushm {

/** The GPU runs kernels of one process at a time, and takes 0.14 ms to 2 ms to turn to another one.
 * Copies by its copy engines do not wait for that (doc/decisions/standby-time-slices.md). So a
 * process has to know what the others on its GPU do.
 *
 * They tell each other by names in the abstract namespace of sockets, which end with the process
 * that has bound them: the claim (GpuClaims), and two names for each mark. A process that has the
 * mark binds one of them. So a process that finds a name that another one has bound knows that
 * somebody else has the mark, and each of several processes finds one. Processes of other network
 * namespaces are not seen. With MPS kernels of several processes run at once, and nobody is seen.
 *
 * Thread safe. */
class GpuSharing {
public:
    static GpuSharing &instance();

    /** The process uses the GPU: looks at the others, and lets them see that. Nothing the second
     * time. */
    void use(CUdevice device);
    /** To be called often: looks at the others on each GPU of use(), once in 20 ms, and changes the
     * marks of this process where they are out of date. Costs some 10 us then. */
    void look_again();

    enum class Others {
        none,
        present,  // another process uses the GPU, too
        kernels,  // and its program launches kernels, or it has the claim, so that it runs kernels
                  // of gpushm
    };
    /** As it was found out by the last look; use() if there was none. */
    Others others(CUdevice device);
    /** Whether programs of other processes launch kernels there. As others(). */
    bool others_compute(CUdevice device);
    /** Whether what the engine does that runs kernels may wait for kernels of other processes. */
    bool kernels_wait(CUdevice device);
    /** Whether this process may copy on the GPU by kernels: nobody else is there, or this process
     * has the claim, or had it and nobody has it now. Takes the claim if it is free. */
    bool may_run_kernels(CUdevice device);

    /** For ForkSafe: a forked child has no marks. */
    void begin_in_child();

private:
    /** One of the things that a process says of itself. */
    class Mark {
    public:
        /** Whether another process has the mark; sets or removes the one of this process. */
        bool exchange(const char *purpose, uint64_t gpu, bool has_it);
        void forget();

    private:
        bool holds_one() const { return names_[0] || names_[1]; }

        std::array<UniqueFd, 2> names_;
    };

    struct Gpu {
        std::atomic<bool> is_used{false};
        std::atomic<bool> is_claimed{false};  // by another process
        std::atomic<Others> others{Others::none};
        std::atomic<bool> others_compute{false};
        // Guarded by the mutex.
        bool takes_turns = true;  // false with MPS
        Mark user;
        Mark computing;
        uint64_t launches = 0;     // of the program, on any GPU, when looked at last
        uint64_t launched_at = 0;  // ns of steady_clock when there were more; 0: never
    };
    static constexpr size_t kMaxGpus = 64;

    Gpu *find(CUdevice device);
    static bool computes(Gpu &gpu, uint64_t now);
    static void look(Gpu &gpu, CUdevice device, uint64_t now);

    std::atomic<uint64_t> next_look_{UINT64_MAX};  // ns of steady_clock
    std::mutex mutex_;
    std::array<Gpu, kMaxGpus> gpus_;
};

}  // namespace gpushm
