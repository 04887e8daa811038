// SPDX-License-Identifier: BSD-3-Clause
// Finds the UCX that asks for the component, among those that a process may have, and its
// functions.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

#include <optional>
#include <string>

namespace gpushm::abi {

/** A loaded UCX. The handle of its libuct finds the symbols of libuct, libucs and libucm. */
class UcxLibrary {
public:
    /** `asking_code` is an address in a libuct, in a libucs, or in a library or program that is
     * linked to a libuct (libucp). Empty: no loaded libuct belongs to it. */
    static std::optional<UcxLibrary> find(const void *asking_code);

    /** Null: this UCX does not export it. */
    void *symbol(const char *name) const;

    /** The variable that UCX uses; null: this UCX does not export it. It is in the program if that
     * has a copy (R_X86_64_COPY; ucx_perftest and ucx_info have a copy of ucs_global_opts). */
    void *variable(const char *name) const;

    /** Asks the libucp of this UCX, and opens it if only libuct is loaded: libuct has no function
     * that returns the version. Empty: there is no libucp. */
    std::optional<Version> version() const;

    /** A function or variable of the libucp of this UCX. Null: no libucp is loaded, or it does not
     * export the symbol. */
    void *ucp_symbol(const char *name) const;

    const std::string &path() const { return path_; }

private:
    UcxLibrary(void *handle, const void *code);

    void *handle_;
    std::string path_;
};

/** The functions that the adapters use. Those that the transport uses, too, are in Symbols. Members
 * that some version lacks are marked "may be null". */
struct Functions {
    void (*component_register)(void *component);
    void (*tl_register)(void *component, void *tl);
    ucs_list_link_t *components_list;
    void *(*ucs_malloc)(size_t size, const char *name);
    ucs_status_t (*single_device_resource)(uct_md_h md, const char *device_name,
                                           uct_device_type_t type, ucs_sys_device_t sys_device,
                                           void **devices, unsigned *device_count);
    void *base_iface_class;
    ucs_status_t (*base_iface_init)(void *iface, void *ucs_class, int *init_count,
                                    uct_iface_ops_t *ops, void *internal_ops, uct_md_h md,
                                    uct_worker_h worker, const uct_iface_params_t *params,
                                    const uct_iface_config_t *config);
    void (*class_cleanup)(void *ucs_class, void *object, int limit);
    void (*base_iface_query)(void *iface, uct_iface_attr_t *attributes);
    void (*progress_enable)(uct_iface_h iface, unsigned flags);
    void (*progress_disable)(uct_iface_h iface, unsigned flags);
    ucs_status_t (*base_iface_estimate_perf)(uct_iface_h iface, void *perf_attr);
    void *iface_config_table;
    void *md_config_table;
    ucs_status_t (*component_query)(uct_component_h component, uct_component_attr_t *attributes);
    ucs_status_t (*md_config_read)(uct_component_h component, const char *env_prefix,
                                   const char *filename, uct_md_config_t **config);
    ucs_status_t (*md_open)(uct_component_h component, const char *md_name,
                            const uct_md_config_t *config, uct_md_h *md);
    void (*config_release)(void *config);
    void *base_rkey_compare;    // may be null
    void *base_iface_query_v2;  // may be null
};

/** Looks up all symbols. False: `missing` gets the name of the first missing one. */
bool resolve(const UcxLibrary &ucx, Functions &functions, Symbols &symbols, std::string &missing);

}  // namespace gpushm::abi
