// SPDX-License-Identifier: BSD-3-Clause
// What is used of CUPTI, opened at run time. Declared here, for a build needs cuda.h only: the
// values and the layouts are those of the activity API of CUDA 11 to 13.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpushm::perf {

constexpr int kCuptiUnifiedMemoryCounter = 25;  // CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER
constexpr uint32_t kCuptiCpuPageFault = 3;      // ..._COUNTER_KIND_CPU_PAGE_FAULT_COUNT
constexpr uint32_t kCuptiGpuPageFault = 4;      // ..._COUNTER_KIND_GPU_PAGE_FAULT
constexpr uint32_t kCuptiAllDevices = 2;        // ..._COUNTER_SCOPE_PROCESS_ALL_DEVICES
constexpr uint32_t kCuptiFlushForced = 1;       // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

/** CUpti_ActivityUnifiedMemoryCounterConfig */
struct CuptiCounterConfig {
    uint32_t scope, kind, device, enable;
};

/** The beginning of CUpti_ActivityUnifiedMemoryCounter2 and 3; of other records, `kind` only. */
struct CuptiRecord {
    uint32_t kind;
    uint32_t counter_kind;
    uint64_t value;  // of a GPU's fault: how many groups of faults of one page
    uint64_t start, end;
    uint64_t address;
    uint32_t source, destination, stream;
    uint32_t process;
};
static_assert(offsetof(CuptiRecord, process) == 52);

using CuptiGiveBuffer = void (*)(uint8_t **buffer, size_t *size, size_t *most_records);
using CuptiTakeBuffer = void (*)(CUcontext, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid);

/** Results are CUptiResult; 0 is success. */
struct Cupti {
    /** That of a release of CUDA (13), or whichever there is; for the rest of the process. Null
     * where there is none; `*reason` then says so. */
    static const Cupti *open(int release, std::string *reason);

    int (*cuptiActivityConfigureUnifiedMemoryCounter)(CuptiCounterConfig *config, uint32_t count);
    int (*cuptiActivityRegisterCallbacks)(CuptiGiveBuffer give, CuptiTakeBuffer take);
    int (*cuptiActivityEnable)(int kind);
    int (*cuptiActivityDisable)(int kind);
    int (*cuptiActivityFlushAll)(uint32_t flags);
    int (*cuptiActivityGetNextRecord)(uint8_t *buffer, size_t valid, const CuptiRecord **record);
    int (*cuptiGetResultString)(int result, const char **text);
};

}  // namespace gpushm::perf
