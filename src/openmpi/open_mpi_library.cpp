// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI in this process.
#include "openmpi/open_mpi_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>

namespace gpushm::openmpi {
namespace {

struct Paths {
    std::string opal;
    std::string mpi;
};

bool begins_with(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

int note_path(dl_phdr_info *object, size_t, void *argument) {
    auto *paths = static_cast<Paths *>(argument);
    const char *slash = strrchr(object->dlpi_name, '/');
    if (slash != nullptr && begins_with(slash, "/libopen-pal.so")) {
        paths->opal = object->dlpi_name;
    } else if (slash != nullptr && begins_with(slash, "/libmpi.so")) {
        paths->mpi = object->dlpi_name;
    }
    return 0;
}

void *open_loaded(const std::string &path) {
    return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace

bool OpenMpiLibrary::find(OpenMpiLibrary *library) {
    Paths paths;
    dl_iterate_phdr(note_path, &paths);
    library->opal_ = open_loaded(paths.opal);
    library->mpi_ = open_loaded(paths.mpi);
    return library->opal_ != nullptr && library->mpi_ != nullptr;
}

void *OpenMpiLibrary::opal(const char *name) const { return dlsym(opal_, name); }

void *OpenMpiLibrary::mpi(const char *name) const { return dlsym(mpi_, name); }

void *OpenMpiLibrary::as_bound(const char *name) const {
    // In the order in which the loader looks, unless the libraries were loaded for somebody alone.
    void *found = dlsym(RTLD_DEFAULT, name);
    found = found != nullptr ? found : dlsym(mpi_, name);
    return found != nullptr ? found : dlsym(opal_, name);
}

const char *OpenMpiLibrary::version() const {
    const auto *text = static_cast<const char *>(as_bound("opal_version_string"));
    return text != nullptr ? text : "of unknown version";
}

}  // namespace gpushm::openmpi
