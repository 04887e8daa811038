// SPDX-License-Identifier: BSD-3-Clause
// LD_PRELOAD library that brings gpushm into UCX 1.13 ... 1.21, whose list of plugins is fixed when
// they are built (src/ucs/sys/module.c). It is in every process of a job, so it needs nothing but
// libc, does nothing until a UCX lists its components or an Open MPI chooses its own, and serves
// whichever that is.
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

/** How mca_base_framework_t begins (opal/mca/base/mca_base_framework.h), in Open MPI 4.1, 5.0
 * and 6.0. */
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

/** Opens a library that is installed beside this one; an error is one line on stderr. */
void *open_sibling(const char *name) {
    Dl_info self;
    char path[PATH_MAX];
    if (dladdr(reinterpret_cast<void *>(&open_sibling), &self) == 0 ||
        strlen(self.dli_fname) + strlen(name) + 2 > sizeof(path)) {
        fprintf(stderr,
                "gpushm: cannot tell the folder of the preload library: install gpushm "
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
    dlclose(handle);  // whoever has loaded it keeps it
    return symbol;
}

/** The function that the caller would have reached without us: that of the library on which the
 * caller depends, which may be loaded RTLD_LOCAL beside another one. */
void *next_function(const char *name, const void *caller) {
    Dl_info info;
    link_map *object = nullptr;
    void *symbol = nullptr;
    if (dladdr1(caller, &info, reinterpret_cast<void **>(&object), RTLD_DL_LINKMAP) != 0 &&
        object->l_name[0] != '\0') {
        symbol = loaded_symbol(object->l_name, name);
    }
    return symbol != nullptr ? symbol
                             : dlsym(RTLD_NEXT, name);  // the program itself is linked to it
}

QueryComponents next_query_components(const void *caller) {
    void *const symbol = next_function(kQueryComponents, caller);
    return reinterpret_cast<QueryComponents>(
        symbol != nullptr ? symbol : loaded_symbol("libuct.so.0", kQueryComponents));
}

/** A function of the plugin; null when that cannot be opened, which is said once. */
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

/** Allocators for GPU memory where the program is ucx_perftest, which looks for them before it
 * loads any plugin. */
__attribute__((constructor)) void help_perftest() {
    if (dlsym(RTLD_DEFAULT, kPerftestAllocators) != nullptr) {
        open_sibling("libucx_perftest_gpushm.so.0");
    }
    dlerror();  // the program must not meet an error of ours
}

}  // namespace

/** Stands before libuct's function of this name; libucp calls it in every ucp_init. */
extern "C" __attribute__((visibility("default"))) Status uct_query_components(void **components,
                                                                              unsigned *count) {
    const QueryComponents next = next_query_components(__builtin_return_address(0));
    if (next == nullptr) {
        fprintf(stderr,
                "gpushm: no libuct.so.0 is loaded, but its function is called: run without "
                "the preload library of gpushm\n");
        return kNoDevice;
    }
    if (void *const enter = in_plugin("gpushm_register")) {
        reinterpret_cast<Register>(enter)(reinterpret_cast<const void *>(next));
    }
    return next(components, count);
}

/** Stands before libopen-pal's function of this name. The hook framework is opened whenever MPI is
 * initialised, as the first one of MPI, when nothing is chosen yet. */
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
