// SPDX-License-Identifier: BSD-3-Clause
// The LD_PRELOAD library with which UCX 1.13 to 1.21 load gpushm: their list of plugins is fixed
// when they are built (src/ucs/sys/module.c). It is in every process of a job, so it depends on
// libc only, and does nothing until a UCX lists its components or an Open MPI selects its own.
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

namespace {

using Status = signed char;  // ucs_status_t is a packed enum, src/ucs/type/status.h
using QueryComponents = Status (*)(void **components, unsigned *count);
using Register = void (*)(const void *asking_code);
using BecomeDefault = void (*)();

/** The first members of mca_base_framework_t (opal/mca/base/mca_base_framework.h of Open
 * MPI 4.1, 5.0 and 6.0). */
struct Framework {
    const char *project;
    const char *name;
};
using OpenFramework = int (*)(Framework *framework, int flags);

constexpr Status kNoDevice = -3;  // UCS_ERR_NO_DEVICE
constexpr int kOpalError = -1;    // OPAL_ERROR
constexpr char kQueryComponents[] = "uct_query_components";
constexpr char kOpenFramework[] = "mca_base_framework_open";
constexpr char kPerftestAllocators[] = "ucx_perf_mem_type_allocators";

pthread_mutex_t plugin_mutex = PTHREAD_MUTEX_INITIALIZER;

/** Opens a library in the folder of this one. Null: an error, which was printed in one line. */
void *open_sibling(const char *name) {
    Dl_info self;
    char path[PATH_MAX];
    if (dladdr(reinterpret_cast<void *>(&open_sibling), &self) == 0 ||
        strlen(self.dli_fname) + strlen(name) + 2 > sizeof(path)) {
        fprintf(stderr,
                "gpushm: cannot find the folder of the preload library: install gpushm "
                "under a shorter path\n");
        return nullptr;
    }
    strcpy(path, self.dli_fname);
    char *const folder = dirname(path);
    memmove(path, folder, strlen(folder) + 1);
    strcat(path, "/");
    strcat(path, name);
    void *const library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        fprintf(stderr, "gpushm: %s; UCX goes on without gpushm: install gpushm again\n",
                dlerror());
    }
    return library;
}

void *loaded_symbol(const char *library, const char *name) {
    void *const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
        return nullptr;
    }
    void *const symbol = dlsym(handle, name);
    dlclose(handle);  // its user keeps it loaded
    return symbol;
}

/** The function that the caller would have called without this library. It is in a library that the
 * caller depends on, which may be loaded with RTLD_LOCAL beside another copy. */
void *next_function(const char *name, const void *caller) {
    Dl_info info;
    link_map *object = nullptr;
    void *symbol = nullptr;
    if (dladdr1(caller, &info, reinterpret_cast<void **>(&object), RTLD_DL_LINKMAP) != 0 &&
        object->l_name[0] != '\0') {
        symbol = loaded_symbol(object->l_name, name);
    }
    return symbol != nullptr ? symbol : dlsym(RTLD_NEXT, name);  // the caller is the program
}

QueryComponents next_query_components(const void *caller) {
    void *const symbol = next_function(kQueryComponents, caller);
    return reinterpret_cast<QueryComponents>(
        symbol != nullptr ? symbol : loaded_symbol("libuct.so.0", kQueryComponents));
}

/** A function of the plugin. Null: the plugin cannot be opened, which is printed once. */
void *in_plugin(const char *name) {
    static bool tried = false;
    static void *plugin = nullptr;
    pthread_mutex_lock(&plugin_mutex);
    if (!tried) {
        tried = true;
        plugin = open_sibling("libuct_gpushm.so.0");
    }
    pthread_mutex_unlock(&plugin_mutex);
    return plugin != nullptr ? dlsym(plugin, name) : nullptr;
}

/** Loads the allocators for GPU memory if the program is ucx_perftest, which needs them before it
 * loads any plugin. */
__attribute__((constructor)) void help_perftest() {
    if (dlsym(RTLD_DEFAULT, kPerftestAllocators) != nullptr) {
        open_sibling("libucx_perftest_gpushm.so.0");
    }
    dlerror();  // the program must not see an error of this library
}

}  // namespace

/** Interposes libuct's function, which libucp calls in every ucp_init. */
extern "C" __attribute__((visibility("default"))) Status uct_query_components(void **components,
                                                                              unsigned *count) {
    const QueryComponents next = next_query_components(__builtin_return_address(0));
    if (next == nullptr) {
        fprintf(
            stderr,
            "gpushm: uct_query_components was called, but no libuct.so.0 is loaded: run without "
            "the preload library of gpushm\n");
        return kNoDevice;
    }
    if (void *const enter = in_plugin("gpushm_register")) {
        reinterpret_cast<Register>(enter)(reinterpret_cast<const void *>(next));
    }
    return next(components, count);
}

/** Interposes libopen-pal's function. Open MPI opens the hook framework whenever MPI is
 * initialised, as the first framework of MPI, before it selects components. */
extern "C" __attribute__((visibility("default"))) int mca_base_framework_open(Framework *framework,
                                                                              int flags) {
    const auto next =
        reinterpret_cast<OpenFramework>(next_function(kOpenFramework, __builtin_return_address(0)));
    if (next == nullptr) {
        return kOpalError;
    }
    if (strcmp(framework->project, "ompi") == 0 && strcmp(framework->name, "hook") == 0) {
        if (void *const enter = in_plugin("gpushm_become_default")) {
            reinterpret_cast<BecomeDefault>(enter)();
        }
    }
    return next(framework, flags);
}
