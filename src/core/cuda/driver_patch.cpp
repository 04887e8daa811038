// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/driver_patch.hpp"

#include <dlfcn.h>

#include <algorithm>

namespace gpushm {
namespace {

void *loaded_driver() {
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

/** Whether the CUDA runtime gets only hooked functions by this name. */
bool runtime_meets_hook(const Hook &wanted, const std::vector<void *> &hooked, void *library) {
    using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t);
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress"));
    int version = 0;
    if (get == nullptr || CudaDriver::get()->driver_get_version(&version) != CUDA_SUCCESS) {
        return get == nullptr;  // before CUDA 11.3 there is dlsym alone
    }
    for (const cuuint64_t flags :
         {CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) {
        void *address = nullptr;
        if (get(wanted.name, &address, version, flags) == CUDA_SUCCESS && address != nullptr &&
            std::find(hooked.begin(), hooked.end(), address) == hooked.end()) {
            return false;
        }
    }
    return true;
}

}  // namespace

const Hook *install_hooks(PatchFunction patch, const std::vector<Hook> &hooks) {
    void *const library = loaded_driver();
    if (library == nullptr) {
        return hooks.data();
    }
    const Hook *missed = nullptr;
    for (const Hook &wanted : hooks) {
        void *const function = dlsym(library, wanted.symbol);
        if (function != nullptr &&
            !patch(function, wanted.replacement, wanted.symbol, wanted.original)) {
            missed = &wanted;
        }
    }
    return missed;
}

const Hook *install_all_hooks(PatchFunction patch, const std::vector<Hook> &hooks) {
    void *const library = loaded_driver();
    std::vector<void *> hooked;
    hooked.reserve(hooks.size());
    for (const Hook &wanted : hooks) {
        hooked.push_back(dlsym(library, wanted.symbol));
    }
    if (const Hook *missed = install_hooks(patch, hooks)) {
        return missed;
    }
    const auto missed = std::find_if(hooks.begin(), hooks.end(), [&](const Hook &wanted) {
        return !runtime_meets_hook(wanted, hooked, library);
    });
    return missed == hooks.end() ? nullptr : &*missed;
}

}  // namespace gpushm
