// SPDX-License-Identifier: BSD-3-Clause
// What makes memory reachable for others: page-locking, mapping memory of another process, and
// gpushm's table of registrations.
#include "../ipc_exporter.hpp"
#include "../memory.hpp"
#include "micro.hpp"

#include "core/memory/registration_table.hpp"

#include <memory>
#include <stdexcept>

namespace gpushm::perf {
namespace {

void lock_pages(benchmark::State &state) {
    const Driver &driver = micro_driver();
    const auto length = static_cast<size_t>(state.range(0));
    Memory memory(&driver, MemoryKind::host, length);
    memory.clear(0, length);
    const CountedCalls counted(state);
    for (auto _ : state) {
        if (!succeeds(
                state,
                driver.cuMemHostRegister(memory.address(), length, CU_MEMHOSTREGISTER_PORTABLE),
                "cuMemHostRegister") ||
            !succeeds(state, driver.cuMemHostUnregister(memory.address()), "cuMemHostUnregister")) {
            break;
        }
    }
}

void map_peer(benchmark::State &state) {
    const Driver &driver = micro_driver();
    try {
        ImportedMemory imported(driver, driver.device_count() - 1,
                                static_cast<size_t>(state.range(0)), 1, -1);
        const CountedCalls counted(state);
        for (auto _ : state) {
            imported.map_again();
        }
    } catch (const std::exception &error) {
        state.SkipWithError(error.what());
    }
}

void register_range(benchmark::State &state) {
    RegistrationTable &table = RegistrationTable::instance();
    const auto list = std::make_unique<RegistrationList>();
    table.publish(list.get());
    for (auto _ : state) {
        table.remove(table.add(list.get(), sizeof(*list)));
    }
    table.cancel(list.get());
}

}  // namespace

void register_registrations() {
    benchmark::RegisterBenchmark("cuMemHostRegister_cuMemHostUnregister", lock_pages)
        ->RangeMultiplier(16)
        ->Range(4096, 64 << 20)
        ->UseRealTime();
    benchmark::RegisterBenchmark("cuIpcOpenMemHandle_cuIpcCloseMemHandle", map_peer)
        ->RangeMultiplier(32)
        ->Range(64 << 10, 64 << 20)
        ->UseRealTime();
}

void register_registration_table() {
    benchmark::RegisterBenchmark("registration_table", register_range);
}

}  // namespace gpushm::perf
