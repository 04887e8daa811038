// SPDX-License-Identifier: BSD-3-Clause
// In which context a copy is made.
#pragma once

#include "core/copy/context_life.hpp"
#include "core/memory/memory_info.hpp"

#include <cuda.h>

#include <cstdint>
#include <map>

namespace gpushm {

/** Never makes a context, but retains the primary one of a device whose memory names no context,
 * until it is destroyed. One thread at a time. */
class ContextChoice {
public:
    ContextChoice() = default;
    ContextChoice(const ContextChoice &) = delete;
    ContextChoice &operator=(const ContextChoice &) = delete;
    ~ContextChoice();

    /** See CopyEngine. */
    CUcontext context_of(const MemoryInfo &gpu_side);
    CUcontext context_near(uint64_t device);

private:
    struct Near {
        CUcontext handle = nullptr;
        ContextLife life;
    };

    CUcontext find_near(uint64_t device);

    std::map<CUdevice, CUcontext> primary_contexts_;  // that are retained
    std::map<uint64_t, Near> near_contexts_;          // of GPUs by device_identity()
};

}  // namespace gpushm
