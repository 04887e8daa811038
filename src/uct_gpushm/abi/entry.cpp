// SPDX-License-Identifier: BSD-3-Clause
// The entry points of the plugin. It has no constructor, because only these know which UCX asks.
#include "uct_gpushm/abi/abi.hpp"

#include <exception>

namespace {

bool enter(const void *asking_code) noexcept {
    try {
        return gpushm::abi::register_component(gpushm::abi::component_description(), asking_code);
    } catch (const std::exception &) {
        return false;  // out of memory: UCX goes on without gpushm
    }
}

}  // namespace

/** Called by the plugin loader in libucs of UCX 1.22 and later (src/ucs/sys/module.c). */
extern "C" __attribute__((visibility("default"))) ucs_status_t ucs_module_global_init() {
    return enter(__builtin_return_address(0)) ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

/** Called by libgpushm_preload.so with an address in the libuct that is about to list its
 * components. Does nothing if it was called for that libuct before. */
extern "C" __attribute__((visibility("default"))) void gpushm_register(const void *asking_code) {
    enter(asking_code);
}
