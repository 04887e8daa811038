// SPDX-License-Identifier: BSD-3-Clause
// How the plugin is entered. It has no constructor: both entries know which UCX asks.
#include "uct_gpushm/abi/abi.hpp"

#include <exception>

namespace {

bool enter(const void *asking_code) noexcept {
    try {
        return gpushm::abi::register_component(gpushm::abi::component_description(), asking_code);
    } catch (const std::exception &) {
        return false;  // out of memory: UCX goes on without us
    }
}

}  // namespace

/** Called by the plugin loader of UCX >= 1.22 once it has loaded us (src/ucs/sys/module.c), from
 * its libucs. */
extern "C" __attribute__((visibility("default"))) ucs_status_t ucs_module_global_init() {
    return enter(__builtin_return_address(0)) ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

/** Called by libgpushm_preload.so with an address in the libuct that is about to list its
 * components. Nothing happens for a libuct that has been here. */
extern "C" __attribute__((visibility("default"))) void gpushm_register(const void *asking_code) {
    enter(asking_code);
}
