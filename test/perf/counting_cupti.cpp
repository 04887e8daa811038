// SPDX-License-Identifier: BSD-3-Clause
// A libcupti that counts the same each time: 30 page faults of the GPU and 10 of the CPU in managed
// memory of this process, with records between them that do not count.
#include "tool/cupti.hpp"

#include <unistd.h>

#include <algorithm>
#include <vector>

namespace {

using gpushm::perf::CuptiCounterConfig;
using gpushm::perf::CuptiGiveBuffer;
using gpushm::perf::CuptiRecord;
using gpushm::perf::CuptiTakeBuffer;

constexpr int kInvalidParameter = 1;
constexpr int kNoMoreRecords = 12;
constexpr uint32_t kKernel = 9;
constexpr uint32_t kBytesToDevice = 1;
constexpr uint64_t kProgramCounter = 0x401000;

CuptiGiveBuffer give;
CuptiTakeBuffer take;
bool enabled;

CuptiRecord record(uint32_t kind, uint32_t counter_kind, uint64_t value, int process) {
    CuptiRecord made = {};
    made.kind = kind;
    made.counter_kind = counter_kind;
    made.value = value;
    made.process = static_cast<uint32_t>(process);
    return made;
}

std::vector<CuptiRecord> make_records() {
    using namespace gpushm::perf;
    std::vector<CuptiRecord> records = {
        record(kCuptiUnifiedMemoryCounter, kCuptiGpuPageFault, 12, getpid()),
        record(kCuptiUnifiedMemoryCounter, kCuptiGpuPageFault, 1000, getpid() + 1),
        record(kCuptiUnifiedMemoryCounter, kBytesToDevice, 4096, getpid()),
        record(kKernel, kCuptiGpuPageFault, 1000, getpid()),
        record(kCuptiUnifiedMemoryCounter, kCuptiGpuPageFault, 18, getpid())};
    records.insert(
        records.end(), 10,
        record(kCuptiUnifiedMemoryCounter, kCuptiCpuPageFault, kProgramCounter, getpid()));
    return records;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuptiActivityConfigureUnifiedMemoryCounter(CuptiCounterConfig *config,
                                                        uint32_t count) {
    const bool right = std::all_of(config, config + count, [](const CuptiCounterConfig &one) {
        return one.scope == gpushm::perf::kCuptiAllDevices && one.enable == 1;
    });
    return right && count == 2 ? 0 : kInvalidParameter;
}

EXPORTED int cuptiActivityRegisterCallbacks(CuptiGiveBuffer given, CuptiTakeBuffer taken) {
    give = given;
    take = taken;
    return 0;
}

EXPORTED int cuptiActivityEnable(int) {
    enabled = true;
    return 0;
}

EXPORTED int cuptiActivityDisable(int) {
    enabled = false;
    return 0;
}

EXPORTED int cuptiActivityFlushAll(uint32_t) {
    if (!enabled) {
        return 0;
    }
    const std::vector<CuptiRecord> records = make_records();
    uint8_t *buffer = nullptr;
    size_t size = 0;
    size_t most_records = 0;
    give(&buffer, &size, &most_records);
    const size_t bytes = records.size() * sizeof(CuptiRecord);
    if (size < bytes) {
        return kInvalidParameter;
    }
    std::copy(records.begin(), records.end(), reinterpret_cast<CuptiRecord *>(buffer));
    take(nullptr, 0, buffer, size, bytes);
    return 0;
}

EXPORTED int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, const CuptiRecord **next) {
    const auto *const first = reinterpret_cast<const CuptiRecord *>(buffer);
    *next = *next == nullptr ? first : *next + 1;
    return *next < first + valid / sizeof(CuptiRecord) ? 0 : kNoMoreRecords;
}

EXPORTED int cuptiGetResultString(int, const char **text) {
    *text = "CUPTI_ERROR_INVALID_PARAMETER";
    return 0;
}
