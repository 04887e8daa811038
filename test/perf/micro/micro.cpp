// SPDX-License-Identifier: BSD-3-Clause
// Micro-benchmarks of what messages are made of. The flags are those of Google Benchmark:
// --benchmark_filter=REGEX, --benchmark_format=json, --benchmark_repetitions=N and others.
#include "micro.hpp"

#include "../ipc_exporter.hpp"
#include "../options.hpp"

#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

namespace gpushm::perf {
namespace {

std::unique_ptr<Driver> opened;  // null: there is none

/** "": there is a driver. Otherwise why not. */
std::string open_driver() {
    std::string reason;
    opened = Driver::open(&reason);
    if (opened != nullptr) {
        opened->use_device(0);
    }
    return reason;
}

/** The other process of a benchmark that maps memory (ipc_exporter.hpp). */
void export_memory(int argc, char **argv) {
    const Options options(
        argc, argv, {{"role", ""}, {"devices", "0"}, {"bytes", ""}, {"seed", ""}, {"cpus", ""}});
    if (open_driver().empty()) {
        run_exporter(*opened, options.integers("devices").front(), options.sizes("bytes").front(),
                     static_cast<uint64_t>(options.number("seed")));
    }
}

void register_all() {
    register_message_hops();
    register_host_copies();
    register_packing_by_cpu();
    register_registration_table();
    if (opened != nullptr) {
        register_packing_by_gpu();
        register_ways_to_copy();
        register_driver_operations();
        register_registrations();
        register_standby_commands();
        register_pointer_kinds();
    }
}

int run(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--role=exporter") == 0) {
        export_memory(argc, argv);
        return 0;
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    const std::string reason = open_driver();
    register_all();
    benchmark::AddCustomContext(
        "gpu", opened != nullptr ? opened->description() : reason + "; what needs it is left out");
    if (opened != nullptr && opened->simulated()) {
        benchmark::AddCustomContext("note", "a simulated driver: its times mean nothing");
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

}  // namespace

const Driver &micro_driver() {
    return *opened;
}

bool succeeds(benchmark::State &state, CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) {
        return true;
    }
    const char *name = nullptr;
    opened->cuGetErrorName(result, &name);
    state.SkipWithError((std::string(what) + ": " + (name != nullptr ? name : "error")).c_str());
    return false;
}

CountedCalls::CountedCalls(benchmark::State &state)
    : state_(state), before_(opened->counts_calls() ? opened->calls() : 0) {}

CountedCalls::~CountedCalls() {
    if (opened->counts_calls()) {
        state_.counters["driver_calls"] = benchmark::Counter(
            static_cast<double>(opened->calls() - before_), benchmark::Counter::kAvgIterations);
    }
}

void count_bytes(benchmark::State &state, size_t bytes) {
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

}  // namespace gpushm::perf

int main(int argc, char **argv) {
    try {
        return gpushm::perf::run(argc, argv);
    } catch (const std::exception &error) {
        std::cerr << "micro_benchmarks: " << error.what() << '\n';
        return 1;
    }
}
