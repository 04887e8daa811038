// SPDX-License-Identifier: BSD-3-Clause
// What kind of memory a pointer names: the driver's answer, and that of gpushm's tables.
#include "../figures.hpp"
#include "../memory.hpp"
#include "micro.hpp"

#include "core/hooks/driver_hooks.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/memory/memory_query.hpp"
#include "core/patching/function_redirection.hpp"

#include <stdexcept>
#include <string>

namespace gpushm::perf {
namespace {

void ask_driver(benchmark::State &state, MemoryKind kind) {
    const Driver &driver = micro_driver();
    const Memory memory(&driver, kind, 4096);
    const CountedCalls counted(state);
    for (auto _ : state) {
        unsigned type = 0;
        // An error for host memory that is not page-locked.
        benchmark::DoNotOptimize(driver.cuPointerGetAttribute(
            &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_pointer(memory.address())));
    }
}

bool patch(void *function, void *hook, const char *, void **original) {
    return redirect_function(function, hook, original);
}

/** From then on query_memory() remembers. */
bool hooks_are_installed() {
    static const bool installed = [] {
        KnownHostPages::instance().trust();
        return install_driver_hooks(patch, nullptr);
    }();
    return installed;
}

void ask_gpushm(benchmark::State &state, MemoryKind kind) {
    const Driver &driver = micro_driver();
    if (!hooks_are_installed()) {
        state.SkipWithError("the functions of this driver cannot be hooked");
        return;
    }
    const Memory memory(&driver, kind, 4096);
    query_memory(memory.address());
    const CountedCalls counted(state);
    for (auto _ : state) {
        benchmark::DoNotOptimize(query_memory(memory.address()));
    }
}

/** Each question is about an allocation that was never asked about. */
void ask_gpushm_first(benchmark::State &state) {
    const Driver &driver = micro_driver();
    if (!hooks_are_installed()) {
        state.SkipWithError("the functions of this driver cannot be hooked");
        return;
    }
    for (auto _ : state) {
        const Memory memory(&driver, MemoryKind::device, 4096);
        const double begin = now_us();
        benchmark::DoNotOptimize(query_memory(memory.address()));
        state.SetIterationTime((now_us() - begin) * 1e-6);
    }
}

}  // namespace

void register_pointer_kinds() {
    constexpr std::pair<const char *, MemoryKind> kKinds[] = {{"host", MemoryKind::host},
                                                              {"pinned", MemoryKind::pinned},
                                                              {"device", MemoryKind::device},
                                                              {"managed", MemoryKind::managed}};
    for (const auto &[name, kind] : kKinds) {
        benchmark::RegisterBenchmark((std::string("kind_of_pointer/driver/") + name).c_str(),
                                     ask_driver, kind);
    }
    for (const auto &[name, kind] : kKinds) {
        benchmark::RegisterBenchmark((std::string("kind_of_pointer/known/") + name).c_str(),
                                     ask_gpushm, kind);
    }
    benchmark::RegisterBenchmark("kind_of_pointer/first/device", ask_gpushm_first)->UseManualTime();
}

}  // namespace gpushm::perf
