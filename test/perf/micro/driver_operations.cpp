// SPDX-License-Identifier: BSD-3-Clause
// The operations of which the paths of messages are made: calls of the driver, copies that are
// started, marked and polled for, and commands of the standby kernel.
#include "../figures.hpp"
#include "../raw_operations.hpp"
#include "../standby_copy.hpp"
#include "micro.hpp"

#include <stdexcept>
#include <string>

namespace gpushm::perf {
namespace {

constexpr size_t kLargest = 4u << 20;

/** A call of the driver for which nothing is under way. */
template <typename Call>
void call_driver(benchmark::State &state, Call call) {
    const Driver &driver = micro_driver();
    CUstream stream = nullptr;
    CUevent event = nullptr;
    if (!succeeds(state, driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                  "cuStreamCreate") ||
        !succeeds(state, driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate")) {
        return;
    }
    for (auto _ : state) {
        if (!succeeds(state, call(driver, stream, event), "the call")) {
            break;
        }
    }
    driver.cuEventDestroy(event);
    driver.cuStreamDestroy(stream);
}

CUresult record_event(const Driver &driver, CUstream stream, CUevent event) {
    return driver.cuEventRecord(event, stream);
}
CUresult query_event(const Driver &driver, CUstream, CUevent event) {
    return driver.cuEventQuery(event);
}
CUresult query_stream(const Driver &driver, CUstream stream, CUevent) {
    return driver.cuStreamQuery(stream);
}
CUresult synchronize_stream(const Driver &driver, CUstream stream, CUevent) {
    return driver.cuStreamSynchronize(stream);
}

void allocate_and_free(benchmark::State &state) {
    const Driver &driver = micro_driver();
    const CountedCalls counted(state);
    for (auto _ : state) {
        CUdeviceptr memory = 0;
        if (!succeeds(state, driver.cuMemAlloc(&memory, static_cast<size_t>(state.range(0))),
                      "cuMemAlloc") ||
            !succeeds(state, driver.cuMemFree(memory), "cuMemFree")) {
            break;
        }
    }
}

/** A copy from its start to the moment at which the CPU knows of its end. */
void run_operation(benchmark::State &state, const std::string &name) {
    const Driver &driver = micro_driver();
    const auto length = static_cast<size_t>(state.range(0));
    try {
        const RawSettings settings = {&driver, 0, driver.device_count() - 1, -1,
                                      pool_bytes({length})};
        const std::unique_ptr<RawOperation> operation = make_raw_operation(name, settings);
        if (!operation->takes(length)) {
            state.SkipWithError("too long for this operation");
            return;
        }
        operation->single(length);
        operation->clear(length);
        {
            const CountedCalls counted(state);
            for (auto _ : state) {
                operation->single(length);
            }
        }
        operation->check(length, 1);
    } catch (const std::exception &error) {
        state.SkipWithError(error.what());
    }
    count_bytes(state, length);
}

void register_operation(const std::string &name, size_t largest) {
    benchmark::RegisterBenchmark(("operation/" + name).c_str(), run_operation, name)
        ->RangeMultiplier(8)
        ->Range(8, static_cast<int64_t>(largest))
        ->UseRealTime();
}

}  // namespace

void register_driver_operations() {
    using Call = CUresult (*)(const Driver &, CUstream, CUevent);
    constexpr std::pair<const char *, Call> kCalls[] = {
        {"cuEventRecord", record_event},
        {"cuEventQuery", query_event},
        {"cuStreamQuery", query_stream},
        {"cuStreamSynchronize", synchronize_stream}};
    for (const auto &[name, call] : kCalls) {
        benchmark::RegisterBenchmark((std::string("driver/") + name).c_str(), call_driver<Call>,
                                     call);
    }
    benchmark::RegisterBenchmark("driver/cuMemAlloc_cuMemFree", allocate_and_free)
        ->RangeMultiplier(16)
        ->Range(4096, 64 << 20);
    for (const char *name : {"d2h", "h2d", "peer"}) {
        register_operation(name, kLargest);
    }
}

void register_standby_commands() {
    constexpr size_t kInline = 64;
    for (const std::string &name : standby_operations()) {
        register_operation(name, name == "standby-inline" ? kInline : kLargest);
    }
}

}  // namespace gpushm::perf
