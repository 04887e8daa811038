// SPDX-License-Identifier: BSD-3-Clause
// What other processes do on a GPU of this process.
#pragma once

#include "core/base/unique_fd.hpp"

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>

namespace gpushm {

/** The GPU runs kernels of one process at a time, and takes 0.14 ms to 2 ms to turn to another one.
 * Copies by its copy engines do not wait for that (doc/decisions/standby-time-slices.md). So a
 * process has to know what the others on its GPU do.
 *
 * They tell each other by names in the abstract namespace of sockets, which end with the process
 * that has bound them: the claim (GpuClaims), and two names for each mark of Marks. A process that
 * has a mark binds the first of the two names that is free. So a process that finds a name taken by
 * another one knows that somebody else has the mark, and each of several processes finds one.
 * Processes of other network namespaces are not seen.
 *
 * Thread safe. */
class GpuSharing {
public:
    static GpuSharing &instance();

    enum class Others {
        none,
        present,  // another process copies there
        kernels,  // another process runs kernels there: kernels of its program, or, if it has the
                  // claim, kernels of gpushm
    };
    /** As it was found out within the last 20 ms. Changes the marks of this process where they are
     * out of date. */
    Others others(CUdevice device);

    /** Whether this process may copy on the GPU by kernels: nobody else is there, or this process
     * has the claim. Takes the claim if it is free. */
    bool may_run_kernels(CUdevice device);

    /** For ForkSafe: a forked child has no marks. */
    void begin_in_child();

private:
    /** One of the things that a process says of itself. */
    class Mark {
    public:
        explicit Mark(const char *purpose) : purpose_(purpose) {}
        /** Whether another process has the mark; sets or removes the one of this process. */
        bool exchange(uint64_t gpu, bool has_it);
        void forget();

    private:
        bool holds_one() const { return names_[0] || names_[1]; }

        const char *purpose_;
        std::array<UniqueFd, 2> names_;
    };

    struct Gpu {
        Mark user{"sharing"};
        Mark computing{"computing"};
        Others others = Others::none;
        bool is_claimed = false;   // by another process
        uint64_t next_look = 0;    // ns of steady_clock
        uint64_t launches = 0;     // of the program, when looked at last
        uint64_t launched_at = 0;  // when there was a new one
    };
    static bool computes(Gpu &gpu, uint64_t now);
    Gpu &look(CUdevice device);

    std::mutex mutex_;
    std::map<CUdevice, Gpu> gpus_;
};

}  // namespace gpushm
