// SPDX-License-Identifier: BSD-3-Clause
// What the micro-benchmarks share (Google Benchmark). Each group registers its benchmarks by a
// function, so that their order does not depend on the linker.
#pragma once

#include "../driver.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::perf {

void register_message_hops();
void register_host_copies();
void register_packing_by_cpu();
void register_registration_table();

// These need a driver.
void register_packing_by_gpu();
void register_ways_to_copy();
void register_driver_operations();
void register_registrations();
void register_standby_commands();
/** The last group: it hooks functions of the driver, for good. */
void register_pointer_kinds();

/** The driver; the primary context of device 0 is current. Only for benchmarks that are registered
 * where there is one. */
const Driver &micro_driver();

/** Ends the benchmark with an error unless `result` is success. */
bool succeeds(benchmark::State &state, CUresult result, const char *what);

/** Sets the counter "driver_calls", the calls of the driver in an iteration, when the benchmark
 * ends; only where the driver counts them. Questions whether something has ended do not count. */
class CountedCalls {
public:
    explicit CountedCalls(benchmark::State &state);
    ~CountedCalls();
    CountedCalls(const CountedCalls &) = delete;
    CountedCalls &operator=(const CountedCalls &) = delete;

private:
    benchmark::State &state_;
    const unsigned long before_;
};

/** Sets the bytes per second of a benchmark with `bytes` in each iteration. */
void count_bytes(benchmark::State &state, size_t bytes);

}  // namespace gpushm::perf
