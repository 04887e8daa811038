// SPDX-License-Identifier: BSD-3-Clause
// cuGetProcAddress: which symbol a function's name means to a program made for some CUDA version.
#include "call.hpp"

#include <cctype>
#include <dlfcn.h>

namespace simcuda {

namespace {

// Symbols that became their function after CUDA 11.3, when cuGetProcAddress came; a program made
// for an older version gets the one before.
struct NewSymbol {
    const char *symbol;
    int since;
};
constexpr NewSymbol kNewSymbols[] = {
    {"cuCtxCreate_v4", 12050},          {"cuCtxSynchronize_v2", 13000},
    {"cuDeviceGetUuid_v2", 11040},      {"cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress_v2", 12000},     {"cuMemcpyBatchAsync", 12080},
    {"cuMemcpyBatchAsync_v2", 13000},   {"cuMemPrefetchAsync_v2", 12020},
    {"cuStreamWaitValue32_v2", 11070},  {"cuStreamWaitValue64_v2", 11070},
    {"cuStreamWriteValue32_v2", 11070}, {"cuStreamWriteValue64_v2", 11070},
};

bool newer_than(const std::string &symbol, int version) {
    for (const NewSymbol &entry : kNewSymbols) {
        if (symbol == entry.symbol) {
            return entry.since > version;
        }
    }
    return false;
}

// This library, whatever its file is called and whoever loaded it.
void *own_handle() {
    Dl_info info;
    const int found = dladdr(reinterpret_cast<void *>(&own_handle), &info);
    return found == 0 ? nullptr : dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

// The form of the symbol for programs whose default stream is that of the thread; the symbol
// itself, at `address`, if there is none.
void *per_thread_form(void *library, const std::string &symbol, void *address) {
    for (const char *form : {"_ptsz", "_ptds"}) {
        void *const found = dlsym(library, (symbol + form).c_str());
        if (found != nullptr) {
            return found;
        }
    }
    return address;
}

// The newest symbol of the function that `version` has; null if there is none. `too_new` is set if
// only newer ones exist.
void *find_symbol(const std::string &function, int version, bool per_thread, bool *too_new) {
    static void *const library = own_handle();
    const bool well_formed = library != nullptr && function.rfind("cu", 0) == 0 &&
                             function.size() > 2 && std::isupper(function[2]) != 0 &&
                             function.find('_') == std::string::npos;
    if (!well_formed) {
        return nullptr;
    }
    for (const char *suffix : {"_v4", "_v2", ""}) {
        const std::string symbol = function + suffix;
        void *address = dlsym(library, symbol.c_str());
        if (address != nullptr) {
            if (!newer_than(symbol, version)) {
                return per_thread ? per_thread_form(library, symbol, address) : address;
            }
            *too_new = true;
        }
    }
    return nullptr;
}

CUresult get_proc_address(const char *function, void **address, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status) {
    if (function == nullptr || address == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    bool too_new = false;
    *address = find_symbol(function, version, per_thread, &too_new);
    if (status != nullptr) {
        *status = *address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                  : too_new           ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

Call call{"cuGetProcAddress"};

}  // namespace

}  // namespace simcuda

#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress(const char *function, void **address, int version,
                                     cuuint64_t flags) {
    return simcuda::call.always(
        [&] { return simcuda::get_proc_address(function, address, version, flags, nullptr); });
}

extern "C" CUresult cuGetProcAddress_v2(const char *function, void **address, int version,
                                        cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    return simcuda::call.always(
        [&] { return simcuda::get_proc_address(function, address, version, flags, status); });
}
