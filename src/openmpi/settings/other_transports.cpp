// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/settings/other_transports.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/ucp_functions.hpp"

#include <uct/api/uct.h>

#include <unistd.h>

#include <algorithm>
#include <string>

namespace gpushm::openmpi {
namespace {

/** Public functions (uct/api/uct.h) of the UCX in this process. */
struct UctFunctions {
    decltype(&uct_query_components) query_components;
    decltype(&uct_release_component_list) release_component_list;
    decltype(&uct_component_query) component_query;
};

/** Finds the functions with libucp, which is linked to libuct. */
bool find_functions(UctFunctions *functions) {
    void *const library = open_loaded_libucp();
    return find_function(library, "uct_query_components", &functions->query_components) &&
           find_function(library, "uct_release_component_list",
                         &functions->release_component_list) &&
           find_function(library, "uct_component_query", &functions->component_query);
}

/** UCX's components for GPUs (src/uct/cuda, src/uct/rocm, src/uct/ze). */
bool is_for_gpus(const std::string &component) {
    return component.rfind("cuda", 0) == 0 || component.rfind("gdr_copy", 0) == 0 ||
           component.rfind("rocm", 0) == 0 || component.rfind("ze_", 0) == 0;
}

bool has_gpu_component(const UctFunctions &uct) {
    uct_component_h *components = nullptr;
    unsigned count = 0;
    if (uct.query_components(&components, &count) != UCS_OK) {
        return true;
    }
    const bool found = std::any_of(components, components + count, [&](uct_component_h component) {
        uct_component_attr_t attributes = {};
        attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        return uct.component_query(component, &attributes) != UCS_OK ||
               is_for_gpus(attributes.name);
    });
    uct.release_component_list(components);
    return found;
}

/** Modules with which a network adapter reads GPU memory on its own, where UCX looks for them
 * (UCX 1.22 src/uct/ib/base/ib_md.c, uct_ib_check_gpudirect_driver). */
bool adapters_reach_gpus() {
    constexpr const char *kModules[] = {"/sys/kernel/mm/memory_peers/nv_mem/version",
                                        "/sys/module/nvidia_peermem/version",
                                        "/sys/module/nv_peer_mem/version"};
    return std::any_of(std::begin(kModules), std::end(kModules),
                       [](const char *path) { return access(path, F_OK) == 0; });
}

bool find_out() {
    UctFunctions uct;
    const bool others = !find_functions(&uct) || has_gpu_component(uct) || adapters_reach_gpus();
    GPUSHM_LOG(
        debug,
        others ? "other transports than gpushm may access GPU memory: derived datatypes are packed "
                 "before they are sent"
               : "only gpushm accesses GPU memory: rows of derived datatypes are sent in place");
    return others;
}

}  // namespace

bool others_reach_gpu_memory() {
    static const bool others = find_out();
    return others;
}

}  // namespace gpushm::openmpi
