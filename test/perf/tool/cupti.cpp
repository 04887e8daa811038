// SPDX-License-Identifier: BSD-3-Clause
#include "cupti.hpp"

#include <dlfcn.h>

namespace gpushm::perf {
namespace {

// Where a toolkit has it when the loader does not find it. Both folders of a toolkit are in use.
constexpr const char *kFolders[] = {"", "/usr/local/cuda/extras/CUPTI/lib64/",
                                    "/usr/local/cuda/lib64/"};

void *open_library(int release) {
    const std::string name = "libcupti.so";
    for (const std::string &version : {"." + std::to_string(release), std::string()}) {
        for (const char *folder : kFolders) {
            void *library = dlopen((folder + name + version).c_str(), RTLD_NOW | RTLD_LOCAL);
            if (library != nullptr) {
                return library;
            }
        }
    }
    return nullptr;
}

template <typename Function>
bool find(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
}

}  // namespace

const Cupti *Cupti::open(int release, std::string *reason) {
    static Cupti cupti;
    void *library = open_library(release);
    if (library == nullptr) {
        *reason = "libcupti.so is not there (of a CUDA toolkit; LD_LIBRARY_PATH)";
        return nullptr;
    }
#define FOUND(function) find(library, #function, &cupti.function)
    const bool found = FOUND(cuptiActivityConfigureUnifiedMemoryCounter) &&
                       FOUND(cuptiActivityRegisterCallbacks) && FOUND(cuptiActivityEnable) &&
                       FOUND(cuptiActivityDisable) && FOUND(cuptiActivityFlushAll) &&
                       FOUND(cuptiActivityGetNextRecord) && FOUND(cuptiGetResultString);
#undef FOUND
    if (!found) {
        *reason = "libcupti.so lacks functions of the activity API";
        return nullptr;
    }
    return &cupti;
}

}  // namespace gpushm::perf
