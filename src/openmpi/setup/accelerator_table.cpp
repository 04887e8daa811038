// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/setup/accelerator_table.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/no_throw_calls.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace gpushm::openmpi {
namespace {

/** The indexes of functions in opal_accelerator_base_module_t, a table of pointers
 * (opal/mca/accelerator/accelerator.h); 0: there is none. */
struct TableLayout {
    size_t functions;  // number of functions in the table
    size_t mem_copy_async;
    size_t mem_copy;
    size_t mem_move_async;
    size_t mem_move;
};
constexpr TableLayout kLayouts[] = {
    {17, 5, 6, 0, 7},   // Open MPI 5.0
    {33, 7, 8, 9, 10},  // Open MPI 6.0
};
constexpr size_t kCheckAddress = 0;

// mca_base_component_t, version 2.1 (opal/mca/mca.h): mca_component_name[64] of the selected
// component.
constexpr size_t kComponentName = 84;
constexpr size_t kComponentNameBytes = 64;

constexpr uint64_t kUnifiedMemory = 1;  // MCA_ACCELERATOR_FLAGS_UNIFIED_MEMORY
constexpr int kError = -1;              // OPAL_ERROR

struct Failure {
    template <typename Result>
    static Result of() {
        report_want_of_memory();
        return kError;
    }
};

/** An entry of the table. */
template <auto function>
void *entry() {
    return reinterpret_cast<void *>(no_throw_call<function, Failure>);
}

int check_address(const void *address, int *device, uint64_t *flags) {
    *device = -1;  // MCA_ACCELERATOR_NO_DEVICE_ID
    *flags = 0;
    if (!is_gpu_memory(address)) {
        return 0;
    }
    const MemoryInfo info = query_memory(address);
    *device = info.device;
    *flags = info.kind == MemoryKind::managed ? kUnifiedMemory : 0;
    return 1;
}

// `Stream` is void * in the forms that are asynchronous, which return when they are complete, or
// nothing.

template <typename... Stream>
int copy(int, int, void *destination, const void *source, size_t length, Stream..., int) {
    return copy_any(destination, source, length) == Status::ok ? 0 : kError;
}

/** The ranges may overlap. */
template <typename... Stream>
int move(int, int, void *destination, const void *source, size_t length, Stream..., int) {
    std::vector<char> between(length);
    return copy_any(between.data(), source, length) == Status::ok &&
                   copy_any(destination, between.data(), length) == Status::ok
               ? 0
               : kError;
}

size_t bytes_of_variable(void *variable) {
    Dl_info info;
    const ElfW(Sym) *symbol = nullptr;
    return dladdr1(variable, &info, reinterpret_cast<void **>(const_cast<ElfW(Sym) **>(&symbol)),
                   RTLD_DL_SYMENT) != 0 &&
                   symbol != nullptr
               ? symbol->st_size
               : 0;
}

/** The name of the component that Open MPI has selected. Null: it has no such framework. */
char *selected_component(const OpenMpiLibrary &library) {
    auto *component =
        static_cast<char *>(library.as_bound("opal_accelerator_base_selected_component"));
    return component != nullptr ? component + kComponentName : nullptr;
}

const TableLayout *find_layout(void *table) {
    const size_t bytes = bytes_of_variable(table);
    for (const TableLayout &layout : kLayouts) {
        if (bytes == layout.functions * sizeof(void *)) {
            return &layout;
        }
    }
    return nullptr;
}

}  // namespace

bool has_own_accelerator(const OpenMpiLibrary &library) {
    if (const char *name = selected_component(library)) {
        return strncmp(name, "null", kComponentNameBytes) != 0;
    }
    const auto *built_with_cuda =
        static_cast<const bool *>(library.as_bound("opal_built_with_cuda_support"));  // 4.1
    return built_with_cuda != nullptr && *built_with_cuda;
}

void fill_accelerator_table(const OpenMpiLibrary &library) {
    char *name = selected_component(library);
    auto *table = static_cast<void **>(library.as_bound("opal_accelerator"));
    const TableLayout *layout = table != nullptr ? find_layout(table) : nullptr;
    if (name == nullptr || layout == nullptr) {
        GPUSHM_LOG_ONCE(debug, "Open MPI %s has no accelerator framework that gpushm knows",
                        library.version());
        return;
    }
    if (table[kCheckAddress] == entry<check_address>()) {
        return;
    }
    table[layout->mem_copy_async] = entry<copy<void *>>();
    table[layout->mem_copy] = entry<copy<>>();
    if (layout->mem_move_async != 0) {
        table[layout->mem_move_async] = entry<move<void *>>();
    }
    table[layout->mem_move] = entry<move<>>();
    table[kCheckAddress] = entry<check_address>();
    memcpy(name, "cuda", sizeof("cuda"));
}

}  // namespace gpushm::openmpi
