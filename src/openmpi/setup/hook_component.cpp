// SPDX-License-Identifier: BSD-3-Clause
// mca_hook_gpushm.so, a component of Open MPI's hook framework. With it, Open MPI sends through UCX
// and gpushm without any setting. Open MPI 4.1, 5.0 and 6.0 have one plug-in interface (MCA 2.1),
// so this file declares the structures itself and includes no header of Open MPI. It depends on
// libc only.
//
// It is also a component of PMIx 5, for the mpirun of Debian 13. Its ranks load components only
// from the folder of PMIx, where PMIx complains about every file without the name of a PMIx
// component. With the name pmix_mca_pcompress_gpushm.so it causes no complaint, and PMIx loads it
// in the ranks before Open MPI selects its components.
#include "openmpi/binding/mca_component.hpp"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

/** pmix_mca_base_component_2_1_0_t (src/mca/mca.h of PMIx). It differs from Open MPI's only in
 * reserved members at its end. */
using PmixComponent = gpushm::openmpi::McaComponent;

constexpr int kPmixNotAvailable = -64;  // PMIX_ERR_NOT_AVAILABLE: PMIx drops the component silently

/** ompi_hook_base_component_1_0_0_t (ompi/mca/hook/hook.h). */
struct HookComponent {
    gpushm::openmpi::McaComponent version;
    gpushm::openmpi::McaComponentData data;
    void (*hooks[12])();  // none is used
};
static_assert(offsetof(HookComponent, hooks) == 264, "hook 1.0");

constexpr char kPlugin[] = "/../libuct_gpushm.so.0";

/** The path of the plugin, in the folder above the folder of this file. Open MPI may have opened a
 * symbolic link. */
bool plugin_path(char *path) {
    Dl_info self;
    char file[PATH_MAX];
    if (dladdr(reinterpret_cast<void *>(&plugin_path), &self) == 0 ||
        realpath(self.dli_fname, file) == nullptr) {
        return false;
    }
    const char *folder = dirname(file);
    if (strlen(folder) + sizeof(kPlugin) > PATH_MAX) {
        return false;
    }
    strcpy(path, folder);
    strcat(path, kPlugin);
    return true;
}

/** Called before Open MPI reads the parameters of its other frameworks (ompi_mpi_init.c,
 * instance.c). */
int register_parameters() {
    char path[PATH_MAX] = "";
    void *const plugin = plugin_path(path) ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : nullptr;
    void *const enter = plugin != nullptr ? dlsym(plugin, "gpushm_become_default") : nullptr;
    if (enter == nullptr) {
        fprintf(
            stderr,
            "gpushm: mca_hook_gpushm.so finds no plugin of its version at \"%s\"; Open MPI goes "
            "on without it: install gpushm again, and then its component\n",
            path);
        return 0;
    }
    reinterpret_cast<void (*)()>(enter)();
    return 0;  // OPAL_SUCCESS
}

/** Called in every process that uses PMIx. Processes of Open MPI have loaded libmpi before. */
int register_with_pmix() {
    if (void *const open_mpi = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD)) {
        register_parameters();
        dlclose(open_mpi);
    }
    return kPmixNotAvailable;
}

}  // namespace

/** Open MPI finds the component by this name, and checks its version, type and name. */
extern "C" {
__attribute__((visibility("default")))
HookComponent mca_hook_gpushm_component = {{{2, 1, 0},
                                            "ompi",
                                            {0, 0, 0},
                                            "hook",
                                            {1, 0, 0},
                                            "gpushm",
                                            {0, 1, 0},
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            register_parameters,
                                            0,
                                            {}},
                                           {1, {}},  // MCA_BASE_METADATA_PARAM_CHECKPOINT
                                           {}};

/** The component for PMIx. */
__attribute__((visibility("default"))) PmixComponent pmix_mca_pcompress_gpushm_component = {
    {2, 1, 0}, "pmix",  {5, 0, 0}, "pcompress",        {2, 0, 0}, "gpushm", {0, 1, 0},
    nullptr,   nullptr, nullptr,   register_with_pmix, 0,         {}};
}
