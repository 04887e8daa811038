// SPDX-License-Identifier: BSD-3-Clause
// Decides whether the UCX that asks can be served, and registers the component there.
#include "config.h"
#include "uct_gpushm/abi/component.hpp"
#include "uct_gpushm/abi/posix_component.hpp"
#include "uct_gpushm/abi/ucx_objects.hpp"

#include <algorithm>
#include <mutex>

namespace gpushm::abi {
namespace {

Running the_running;

/** Why a registration failed, as a line for the log; empty: it succeeded. */
using Refusal = std::string;

Refusal missing_symbol(const UcxLibrary &ucx, const std::string &name) {
    return "needs " + name + ", which the UCX at " + ucx.path() +
           " does not export: use an unmodified UCX";
}

Refusal choose_layout(const UcxLibrary &ucx, Running &target) {
    const std::optional<Version> version = ucx.version();
    if (!version) {
        return "cannot ask the version of the UCX at " + ucx.path() +
               ": put its libucp.so.0 beside it";
    }
    target.version = *version;
    target.layout = find_layout(version->major, version->minor);
    const std::string obstacle =
        why_not_served(*version, ucx.symbol("ucs_stats_node_alloc") != nullptr, ucx.path());
    return obstacle.empty() ? Refusal{} : "cannot be used: " + obstacle;
}

/** Requires all functions that the layout has a member for. */
Refusal resolve_functions(const UcxLibrary &ucx, Running &target) {
    std::string missing;
    if (!resolve(ucx, target.functions, target.symbols, missing)) {
        return missing_symbol(ucx, missing);
    }
    const Layout &layout = *target.layout;
    const Functions &functions = target.functions;
    if (layout.component.has(ComponentField::rkey_compare) && !functions.base_rkey_compare) {
        return missing_symbol(ucx, "uct_base_rkey_compare");
    }
    if (layout.internal_ops.has(InternalOp::iface_query_v2) && !functions.base_iface_query_v2) {
        return missing_symbol(ucx, "uct_iface_base_query_v2");
    }
    return {};
}

struct Registry {
    std::mutex mutex;
    std::vector<std::string> decided;  // paths of all libuct that have asked
    std::string served;                // path of the libuct in which the component is registered
};

/** Never destroyed, because UCX may ask while the process ends. */
Registry &registry() {
    static Registry *const instance = new Registry;
    return *instance;
}

Refusal register_in(const UcxLibrary &ucx, Running &target, Registry &known) {
    if (!known.served.empty()) {
        return "serves the UCX at " + known.served + ", not also that at " + ucx.path() +
               ": use one UCX in a process";
    }
    Refusal refusal = choose_layout(ucx, target);
    if (!refusal.empty()) {
        return refusal;
    }
    refusal = resolve_functions(ucx, target);
    // Another copy of the plugin may have registered a component with this name.
    if (!refusal.empty() || find_component(target, target.description->name) != nullptr) {
        return refusal;
    }
    std::string missing;
    static const auto *const option_table =
        new std::vector<unsigned char>(build_option_table(ucx, target, missing));  // UCX keeps it
    if (!missing.empty()) {
        return missing_symbol(ucx, missing);
    }
    target.am_handlers = ucx.ucp_symbol("ucp_am_handlers");
    target.rkey_pack = ucx.ucp_symbol("ucp_rkey_pack");
    target.memh_pack = ucx.ucp_symbol("ucp_memh_pack");
    the_running = target;
    known.served = ucx.path();
    register_objects(option_table->data());
    leave_out_posix();
    log_line(UCS_LOG_LEVEL_DEBUG, "gpushm " PACKAGE_VERSION " is registered in UCX %s at %s",
             to_string(target.version).c_str(), ucx.path().c_str());
    return {};
}

}  // namespace

const Running &running() {
    return the_running;
}

const Symbols &symbols() {
    return the_running.symbols;
}

Version running_version() {
    return the_running.version;
}

bool register_component(const ComponentDescription &description, const void *asking_code) {
    Registry &known = registry();
    const std::lock_guard<std::mutex> lock{known.mutex};
    const std::optional<UcxLibrary> ucx = UcxLibrary::find(asking_code);
    if (!ucx) {
        log_line(UCS_LOG_LEVEL_WARN, "gpushm " PACKAGE_VERSION
                                     " found no libuct for the UCX that loaded it: use a UCX "
                                     "with shared libraries");
        return false;
    }
    if (std::find(known.decided.begin(), known.decided.end(), ucx->path()) != known.decided.end()) {
        return ucx->path() == known.served;
    }
    known.decided.push_back(ucx->path());

    Running target{};
    target.description = &description;
    use_log_of(*ucx, target);
    const Refusal refusal = register_in(*ucx, target, known);
    if (!refusal.empty()) {
        write_log(target, UCS_LOG_LEVEL_WARN,
                  "gpushm " PACKAGE_VERSION " " + refusal + "; UCX goes on without it");
    }
    return ucx->path() == known.served;
}

}  // namespace gpushm::abi
