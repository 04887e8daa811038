// SPDX-License-Identifier: BSD-3-Clause
// A component and its options in terms that no UCX version changes.
#pragma once

#include "uct_gpushm/abi/neutral_domain.hpp"

#include <uct/api/uct.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::abi {

enum class OptionType { boolean, memory_size, unsigned_integer, ternary_auto, time };

/** One UCX_GPUSHM_* option. `offset` is into the configuration struct, which begins with
 * IfaceConfigHead. The field is an int for boolean and ternary_auto (UCS_NO 0, UCS_YES 1, UCS_TRY
 * 2, UCS_AUTO 3), a size_t for memory_size, an unsigned for unsigned_integer, a double in seconds
 * for time. */
struct Option {
    const char *name;
    const char *default_value;
    const char *documentation;
    OptionType type;
    size_t offset;
};

/** UCX takes it for a uct_iface_config_t. */
struct IfaceConfigHead {
    unsigned char uct_iface_config[32];
};

/** A component. register_component() is called once with it, and it must live for ever. */
struct ComponentDescription {
    const char *name;
    /** Empty if the component has nothing to offer. Never fails. */
    std::vector<std::string> (*md_names)();
    /** Null, logged, if the domain cannot be opened. */
    std::unique_ptr<MemoryDomain> (*md_open)(const std::string &md_name);
    /** Gets the bytes that mkey_pack of a domain with keys wrote, at an unaligned address. */
    ucs_status_t (*rkey_unpack)(const void *rkey_buffer, uct_rkey_t *rkey, void **handle);
    ucs_status_t (*rkey_release)(uct_rkey_t rkey, void *handle);

    const char *tl_name;
    /** The name of a domain's device; empty: the domain has none. */
    std::string (*device_name)(MemoryDomain &md);
    ucs_status_t (*iface_open)(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                               const uct_iface_config_t *config, uct_iface_h *iface);
    const char *config_prefix;  // "GPUSHM_"
    std::vector<Option> options;
    size_t config_size;
};

}  // namespace gpushm::abi
