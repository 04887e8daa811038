// SPDX-License-Identifier: BSD-3-Clause
// Three ways in which a library can copy a buffer of unknown kind (Ji et al., section IV-D, figures
// 4 and 5): the driver's copy for any two addresses, a question to the driver before the copy, and
// the kind as a parameter.
#include "../memory.hpp"
#include "micro.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace gpushm::perf {
namespace {

constexpr size_t kLargest = 16u << 20;

struct Direction {
    const char *name;
    MemoryKind source;
    MemoryKind destination;
};

constexpr Direction kDirections[] = {
    {"host_to_host", MemoryKind::pinned, MemoryKind::pinned},
    {"host_to_device", MemoryKind::pinned, MemoryKind::device},
    {"device_to_host", MemoryKind::device, MemoryKind::pinned},
};

enum class Way { any_addresses, ask_before, kind_known };

bool is_device(MemoryKind kind) {
    return kind == MemoryKind::device;
}

MemoryKind ask(const Driver &driver, const void *address) {
    unsigned type = CU_MEMORYTYPE_HOST;
    const CUresult result = driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                         device_pointer(address));
    return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE ? MemoryKind::device
                                                                  : MemoryKind::pinned;
}

CUresult copy_known(const Driver &driver, char *destination, MemoryKind to, const char *source,
                    MemoryKind from, size_t length) {
    if (is_device(to)) {
        return driver.cuMemcpyHtoD(device_pointer(destination), source, length);
    }
    if (is_device(from)) {
        return driver.cuMemcpyDtoH(destination, device_pointer(source), length);
    }
    memcpy(destination, source, length);
    return CUDA_SUCCESS;
}

CUresult copy(const Driver &driver, Way way, const Direction &direction, char *destination,
              const char *source, size_t length) {
    switch (way) {
        case Way::any_addresses:
            return driver.cuMemcpy(device_pointer(destination), device_pointer(source), length);
        case Way::ask_before:
            return copy_known(driver, destination, ask(driver, destination), source,
                              ask(driver, source), length);
        case Way::kind_known:
            break;
    }
    return copy_known(driver, destination, direction.destination, source, direction.source, length);
}

void copy_buffer(benchmark::State &state, Way way, const Direction &direction) {
    constexpr uint64_t kSeed = 35;
    const auto length = static_cast<size_t>(state.range(0));
    const Driver &driver = micro_driver();
    try {
        Memory source(&driver, direction.source, length);
        Memory destination(&driver, direction.destination, length);
        source.fill(0, length, kSeed);
        destination.clear(0, length);
        {
            const CountedCalls counted(state);
            for (auto _ : state) {
                if (!succeeds(state,
                              copy(driver, way, direction, destination.address(), source.address(),
                                   length),
                              "the copy")) {
                    return;
                }
            }
        }
        driver.require(driver.cuCtxSynchronize(), "cuCtxSynchronize");
        destination.check(0, length, kSeed);
    } catch (const std::exception &error) {
        state.SkipWithError(error.what());
    }
    count_bytes(state, length);
}

}  // namespace

void register_ways_to_copy() {
    constexpr std::pair<const char *, Way> kWays[] = {{"any_addresses", Way::any_addresses},
                                                      {"ask_before", Way::ask_before},
                                                      {"kind_known", Way::kind_known}};
    for (const Direction &direction : kDirections) {
        for (const auto &[name, way] : kWays) {
            benchmark::RegisterBenchmark(
                (std::string("copy/") + direction.name + "/" + name).c_str(), copy_buffer, way,
                direction)
                ->RangeMultiplier(4)
                ->Range(1, kLargest)
                ->UseRealTime();
        }
    }
}

}  // namespace gpushm::perf
