// SPDX-License-Identifier: BSD-3-Clause
// The UCX in which gpushm's component is registered; one in a process.
#pragma once

#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/layout.hpp"
#include "uct_gpushm/abi/ucx_library.hpp"

namespace gpushm::abi {

/** Set once, before the component is registered. Constant afterwards. */
struct Running {
    Version version;
    const Layout *layout;
    const ComponentDescription *description;
    Functions functions;
    Symbols symbols;
    // Symbols of its libucp; may be null.
    void *am_handlers;        // ucp_am_handlers
    void *rkey_pack;          // ucp_rkey_pack
    void *memh_pack;          // ucp_memh_pack, of UCX 1.14 and later
    const void *global_opts;  // ucs_global_opts, whose first member is the log's configuration
};

const Running &running();

/** The log of a UCX can be used although its version is unknown. */
void use_log_of(const UcxLibrary &ucx, Running &target);
void write_log(const Running &target, ucs_log_level_t level, const std::string &line);

}  // namespace gpushm::abi
