// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/settings/pml_ucx.hpp"

#include "openmpi/settings/mca_parameters.hpp"
#include "uct_gpushm/abi/served_versions.hpp"

#include <dlfcn.h>

#include <functional>

namespace gpushm::openmpi {
namespace {

using GetVersion = void (*)(unsigned *major, unsigned *minor, unsigned *release);
using Lookup = std::function<void *(const char *symbol)>;

/** `find` looks a symbol up in the libraries that pml/ucx is linked to. */
std::string why_not_served(const Lookup &find) {
    void *const get_version = find("ucp_get_version");
    if (get_version == nullptr) {
        return "Open MPI has its UCX linked in statically, and gpushm cannot be loaded into it: "
               "use "
               "one with shared libraries";
    }
    abi::Version version;
    reinterpret_cast<GetVersion>(get_version)(&version.major, &version.minor, &version.release);
    return abi::why_not_served(version, find("ucs_stats_node_alloc") != nullptr,
                               file_of(get_version));
}

/** The component stays open, because Open MPI loads it next. */
std::string why_not_served_by(const std::string &component) {
    void *const handle = dlopen(component.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
        return {};  // Open MPI will log why
    }
    return why_not_served([handle](const char *symbol) { return dlsym(handle, symbol); });
}

}  // namespace

std::string why_not_through_ucx(const OpenMpiLibrary &library) {
    const ComponentPlace place = find_component(library, "pml", "ucx");
    switch (place.kind) {
        case ComponentPlace::Kind::built_in:
            return why_not_served([&](const char *symbol) { return library.mpi(symbol); });
        case ComponentPlace::Kind::file:
            return why_not_served_by(place.path);
        case ComponentPlace::Kind::nowhere:
            return std::string("Open MPI ") + library.version() +
                   " was built without UCX: use one whose ompi_info lists \"pml: ucx\"";
        case ComponentPlace::Kind::unknown:
            break;
    }
    return {};
}

}  // namespace gpushm::openmpi
