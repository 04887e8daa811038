// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/open_mpi_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>

namespace gpushm::openmpi {
namespace {

struct Search {
    std::initializer_list<const char *> names;
    std::string path;
};

int note_path(dl_phdr_info *object, size_t, void *argument) {
    auto &search = *static_cast<Search *>(argument);
    const char *slash = strrchr(object->dlpi_name, '/');
    for (const char *name : search.names) {
        if (slash != nullptr && strncmp(slash + 1, name, strlen(name)) == 0) {
            search.path = object->dlpi_name;
        }
    }
    return 0;
}

/** Whether an address of a function is that of a stub in a program without PIE, which calls the
 * function. */
bool is_stub(void *function) {
    Dl_info info;
    void *found = nullptr;
    if (dladdr1(function, &info, &found, RTLD_DL_SYMENT) == 0 || found == nullptr) {
        return false;
    }
    return static_cast<const ElfW(Sym) *>(found)->st_shndx == SHN_UNDEF;
}

bool is_defined_in(const link_map *object, void *symbol) {
    Dl_info info;
    void *defining = nullptr;
    return symbol != nullptr && dladdr1(symbol, &info, &defining, RTLD_DL_LINKMAP) != 0 &&
           defining == object;
}

/** The symbol `name` of the first library behind the program that defines it; null: none does.
 * dlsym also searches the libraries that `library` needs, one of which may come first. */
void *find_behind_program(void *library, const char *name) {
    link_map *object = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &object) != 0) {
        return nullptr;
    }
    while (object->l_prev != nullptr) {
        object = object->l_prev;
    }
    void *found = nullptr;
    while (found == nullptr && (object = object->l_next) != nullptr) {
        if (void *const handle = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD)) {
            void *const symbol = dlsym(handle, name);
            found = is_defined_in(object, symbol) ? symbol : nullptr;
            dlclose(handle);
        }
    }
    return found;
}

}  // namespace

void *open_loaded_library(std::initializer_list<const char *> names) {
    Search search = {names, {}};
    dl_iterate_phdr(note_path, &search);
    return search.path.empty() ? nullptr : dlopen(search.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

std::string file_of(void *symbol) {
    Dl_info info;
    return dladdr(symbol, &info) != 0 ? info.dli_fname : "";
}

bool OpenMpiLibrary::find(OpenMpiLibrary *library) {
    library->opal_ = open_loaded_library({"libopen-pal.so"});
    library->mpi_ = open_loaded_library({"libmpi.so"});
    return library->opal_ != nullptr && library->mpi_ != nullptr;
}

bool OpenMpiLibrary::is_in_use() const {
    const auto *const initialized = static_cast<const int *>(opal("opal_initialized"));
    return initialized == nullptr || *initialized > 0;
}

void *OpenMpiLibrary::opal(const char *name) const {
    return dlsym(opal_, name);
}

void *OpenMpiLibrary::mpi(const char *name) const {
    return dlsym(mpi_, name);
}

void *OpenMpiLibrary::as_bound(const char *name) const {
    // The loader's order, unless the libraries were loaded with RTLD_LOCAL.
    void *found = dlsym(RTLD_DEFAULT, name);
    found = found != nullptr ? found : dlsym(mpi_, name);
    return found != nullptr ? found : dlsym(opal_, name);
}

void *OpenMpiLibrary::as_called(const char *name) const {
    void *const found = as_bound(name);
    return found != nullptr && is_stub(found) ? find_behind_program(mpi_, name) : found;
}

const char *OpenMpiLibrary::version() const {
    const auto *text = static_cast<const char *>(as_bound("opal_version_string"));
    return text != nullptr ? text : "of unknown version";
}

}  // namespace gpushm::openmpi
