// SPDX-License-Identifier: BSD-3-Clause
// The functions of libcuda.so.1 that the tests call.
#include "driver_api.hpp"

#include <dlfcn.h>

#define SIMCUDA_TEXT_OF(text) #text
#define SIMCUDA_TEXT(macro) SIMCUDA_TEXT_OF(macro)

namespace {

DriverApi api;

template <typename Function>
bool look_up(const char *symbol, Function *function, std::string *reason) {
    *function = reinterpret_cast<Function>(dlsym(api.handle, symbol));
    if (*function == nullptr) {
        *reason = std::string("libcuda.so.1 has no ") + symbol;
    }
    return *function != nullptr;
}

}  // namespace

bool DriverApi::simulated() const {
    return dlsym(handle, "simcuda_call_count") != nullptr;
}

void *DriverApi::find_symbol(const std::string &symbol) const {
    return dlsym(handle, symbol.c_str());
}

bool load_driver(std::string *reason) {
    api.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (api.handle == nullptr) {
        *reason = dlerror();
        return false;
    }
    bool found = look_up("cuCtxCreate_v2", &api.create_context, reason);
#define X(function) found = found && look_up(SIMCUDA_TEXT(function), &api.function, reason);
    SIMCUDA_TEST_FUNCTIONS(X)
#undef X
    found = found && look_up("cuMemPrefetchAsync", &api.prefetch, reason);
    std::string missing;
    look_up("cuCtxRecordEvent", &api.record_context, &missing);
    look_up("cuMemcpyBatchAsync", &api.copy_batch_12080, &missing);
    look_up("cuMemcpyBatchAsync_v2", &api.copy_batch, &missing);
    return found;
}

const DriverApi &cu() {
    return api;
}
