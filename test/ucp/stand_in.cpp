// SPDX-License-Identifier: BSD-3-Clause
// A preload library by which bad_input.sh makes the libraries at hand look like others:
//   STAND_IN_MINOR=N      libucp says that it is UCX 1.N.0
//   STAND_IN_ADDS=SYMBOL  dlsym finds SYMBOL
//   STAND_IN_HIDES=SYMBOL dlsym does not find SYMBOL
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

using Dlsym = void *(*)(void *handle, const char *name);

Dlsym real_dlsym() {
    // The versions under which glibc has had it from the start on x86-64 and on AArch64.
    for (const char *version : {"GLIBC_2.2.5", "GLIBC_2.17"}) {
        if (void *found = dlvsym(RTLD_NEXT, "dlsym", version)) {
            return reinterpret_cast<Dlsym>(found);
        }
    }
    std::abort();
}

bool is_named(const char *variable, const char *name) {
    const char *value = std::getenv(variable);
    return value != nullptr && std::strcmp(value, name) == 0;
}

}  // namespace

extern "C" void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);

extern "C" void *dlsym(void *handle, const char *name) noexcept {
    static const Dlsym next = real_dlsym();
    static char something;
    if (is_named("STAND_IN_HIDES", name)) {
        return nullptr;
    }
    if (std::getenv("STAND_IN_MINOR") != nullptr && std::strcmp(name, "ucp_get_version") == 0) {
        return reinterpret_cast<void *>(ucp_get_version);
    }
    return is_named("STAND_IN_ADDS", name) ? &something : next(handle, name);
}

extern "C" void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {
    const char *stand_in = std::getenv("STAND_IN_MINOR");
    *major = 1;
    *minor = stand_in != nullptr ? static_cast<unsigned>(std::atoi(stand_in)) : 0;
    *release = 0;
    if (stand_in == nullptr) {
        using GetVersion = void (*)(unsigned *, unsigned *, unsigned *);
        if (void *next = dlsym(RTLD_NEXT, "ucp_get_version")) {
            reinterpret_cast<GetVersion>(next)(major, minor, release);
        }
    }
}
