// SPDX-License-Identifier: BSD-3-Clause
// Which host memory of this process is shared memory of gpushm, and page-locked for the GPU.
#pragma once

#include <cuda.h>

#include <cuda.h>

#include <cstddef>
#include <map>
#include <mutex>

namespace gpushm {

/** All mapped segments. One is page-locked (cuMemHostRegister, 0.7 to 4 ms) when the first GPU copy
 *  touches it and not before, so that a job on host memory never pays for it. Safe to use from every
 *  thread. */
class HostRegions {
public:
    static HostRegions &instance();

    void add(unsigned char *base, size_t length);
    /** Also unlocks it; the caller unmaps it afterwards. Needs no current context. */
    void remove(unsigned char *base);

    /** Page-locks the segment in which `address` lies, once; does nothing for other memory. A CUDA
     *  context must be current. When the driver refuses, one line is logged and copies go on with
     *  pageable memory: slower, as correct. */
    void ensure_pinned(const void *address);

    /** UCX_GPUSHM_PIN=n: ensure_pinned does nothing. */
    void set_pinning_enabled(bool enabled);

private:
    enum class State { pageable, pinned, refused };
    struct Region {
        size_t length;
        State state;
        CUcontext context;  // in which it was page-locked
    };

    std::mutex mutex_;
    std::map<const unsigned char *, Region> regions_;  // by base address
    bool pinning_enabled_ = true;
};

}  // namespace gpushm
