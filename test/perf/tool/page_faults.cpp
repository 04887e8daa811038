// SPDX-License-Identifier: BSD-3-Clause
#include "page_faults.hpp"

#include "cupti.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace gpushm::perf {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kBufferAlignment = 8;

// Null until CUPTI was opened. What a callback of CUPTI, in a thread of its own, works with.
const Cupti *opened = nullptr;
// Added to by callbacks, read after a flush, which returns when they are over.
std::atomic<uint64_t> managed_cpu_faults{0};
std::atomic<uint64_t> gpu_faults{0};

long cpu_faults() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

void give_buffer(uint8_t **buffer, size_t *size, size_t *most_records) {
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
    *size = *buffer != nullptr ? kBufferBytes : 0;
    *most_records = 0;  // as many as fit
}

void take_buffer(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    const CuptiRecord *record = nullptr;
    while (opened->cuptiActivityGetNextRecord(buffer, valid, &record) == 0) {
        if (record->kind != kCuptiUnifiedMemoryCounter ||
            record->process != static_cast<uint32_t>(getpid())) {
            continue;
        }
        if (record->counter_kind == kCuptiGpuPageFault) {
            gpu_faults.fetch_add(record->value, std::memory_order_relaxed);
        } else if (record->counter_kind == kCuptiCpuPageFault) {
            managed_cpu_faults.fetch_add(1, std::memory_order_relaxed);
        }
    }
    std::free(buffer);
}

std::string failure(const char *what, int result) {
    const char *text = nullptr;
    opened->cuptiGetResultString(result, &text);
    return std::string(what) + ": " + (text != nullptr ? text : std::to_string(result));
}

}  // namespace

PageFaultCounter::PageFaultCounter(const Driver &driver) {
    int version = 0;
    driver.cuDriverGetVersion(&version);
    opened = Cupti::open(version / 1000, &refusal_);
    if (opened == nullptr) {
        return;
    }
    CuptiCounterConfig counters[] = {{kCuptiAllDevices, kCuptiCpuPageFault, 0, 1},
                                     {kCuptiAllDevices, kCuptiGpuPageFault, 0, 1}};
    int result = opened->cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    const char *what = "cuptiActivityRegisterCallbacks";
    if (result == 0) {
        what = "cuptiActivityConfigureUnifiedMemoryCounter";
        result = opened->cuptiActivityConfigureUnifiedMemoryCounter(counters, 2);
    }
    if (result == 0) {
        refusal_ = enable();
        opened->cuptiActivityDisable(kCuptiUnifiedMemoryCounter);
    } else {
        refusal_ = failure(what, result);
    }
}

std::string PageFaultCounter::enable() {
    const int result = opened->cuptiActivityEnable(kCuptiUnifiedMemoryCounter);
    return result == 0 ? "" : failure("cuptiActivityEnable", result);
}

void PageFaultCounter::start() {
    if (refusal_.empty()) {
        refusal_ = enable();
    }
    managed_cpu_faults.store(0, std::memory_order_relaxed);
    gpu_faults.store(0, std::memory_order_relaxed);
    cpu_at_start_ = cpu_faults();
}

PageFaults PageFaultCounter::stop() {
    PageFaults faults;
    faults.cpu = static_cast<double>(cpu_faults() - cpu_at_start_);
    if (refusal_.empty()) {
        opened->cuptiActivityFlushAll(kCuptiFlushForced);
        opened->cuptiActivityDisable(kCuptiUnifiedMemoryCounter);
        faults.managed_cpu =
            static_cast<double>(managed_cpu_faults.load(std::memory_order_relaxed));
        faults.gpu = static_cast<double>(gpu_faults.load(std::memory_order_relaxed));
    }
    return faults;
}

}  // namespace gpushm::perf
