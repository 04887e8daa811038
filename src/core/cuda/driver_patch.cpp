// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/driver_patch.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace gpushm {
namespace {

void *loaded_driver() {
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

/** Whether the CUDA runtime gets only hooked functions by the name of the symbol, which it gives
 * without a suffix such as _v2_ptsz. */
bool runtime_meets_hook(const char *symbol, const std::vector<void *> &hooked, void *library) {
    using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t);
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress"));
    int version = 0;
    if (get == nullptr || CudaDriver::get()->driver_get_version(&version) != CUDA_SUCCESS) {
        return get == nullptr;  // before CUDA 11.3 there is dlsym alone
    }
    const std::string name(symbol, strcspn(symbol, "_"));
    for (const cuuint64_t flags :
         {CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) {
        void *address = nullptr;
        if (get(name.c_str(), &address, version, flags) == CUDA_SUCCESS && address != nullptr &&
            std::find(hooked.begin(), hooked.end(), address) == hooked.end()) {
            return false;
        }
    }
    return true;
}

}  // namespace

Hooks joined(std::initializer_list<Hooks> lists) {
    Hooks all;
    for (const Hooks &list : lists) {
        all.insert(all.end(), list.begin(), list.end());
    }
    return all;
}

const char *install_hooks(PatchFunction patch, const Hooks &hooks) {
    void *const library = loaded_driver();
    if (library == nullptr) {
        return hooks.front().symbol;
    }
    const char *missed = nullptr;
    for (const Hook &wanted : hooks) {
        void *const function = dlsym(library, wanted.symbol);
        if (function != nullptr &&
            !patch(function, wanted.replacement, wanted.symbol, wanted.original)) {
            missed = wanted.symbol;
        }
    }
    return missed;
}

const char *install_all_hooks(PatchFunction patch, const Hooks &hooks) {
    void *const library = loaded_driver();
    std::vector<void *> hooked;
    for (const Hook &wanted : hooks) {
        hooked.push_back(dlsym(library, wanted.symbol));
    }
    const char *missed = install_hooks(patch, hooks);
    for (size_t i = 0; i < hooks.size() && missed == nullptr; ++i) {
        missed = runtime_meets_hook(hooks[i].symbol, hooked, library) ? nullptr : hooks[i].symbol;
    }
    return missed;
}

}  // namespace gpushm
