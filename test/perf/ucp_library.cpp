// SPDX-License-Identifier: BSD-3-Clause
#include "ucp_library.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace gpushm::perf {
namespace {

template <typename Function>
void look_up(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function == nullptr) {
        throw std::runtime_error(std::string("libucp.so.0 has no ") + name);
    }
}

}  // namespace

UcpLibrary::UcpLibrary() {
    // Global, as if the program were linked to it: UCX's modules look for its symbols.
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
        throw std::runtime_error(std::string(dlerror()) +
                                 ": install UCX, or give its folder by LD_LIBRARY_PATH");
    }
#define X(function) look_up(library, #function, &this->function);
    GPUSHM_PERF_UCP_FUNCTIONS(X)
#undef X
}

void UcpLibrary::require(ucs_status_t status, const char *what) const {
    if (status != UCS_OK) {
        throw std::runtime_error(std::string(what) + " failed: " + ucs_status_string(status));
    }
}

}  // namespace gpushm::perf
