// SPDX-License-Identifier: BSD-3-Clause
// Finds the UCX that wants our component among those that a process may hold, and its functions.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

#include <optional>
#include <string>

namespace gpushm::abi {

/** A loaded UCX: a handle of its libuct, by which the symbols of libuct and of the libucs and
 * libucm beneath it are found. */
class UcxLibrary {
public:
    /** `asking_code` is an address in a libuct, or in a library or program that uses one (libucp),
     * or in a libucs. Empty when no loaded libuct belongs to it. */
    static std::optional<UcxLibrary> find(const void *asking_code);

    /** Null when this UCX does not export it. */
    void *symbol(const char *name) const;

    /** The same for a variable: where UCX itself sees it, which is in the program when that has a
     * copy of it (R_X86_64_COPY; ucx_perftest and ucx_info have one of ucs_global_opts). */
    void *variable(const char *name) const;

    /** Asks the libucp of this UCX; opens it where only libuct is in use. Empty when there is none.
     * libuct itself does not tell its version. */
    std::optional<Version> version() const;

    /** A function or variable of the libucp of this UCX; null when none is loaded or it does not
     * export it. */
    void *ucp_symbol(const char *name) const;

    const std::string &path() const { return path_; }

private:
    UcxLibrary(void *handle, const void *code);

    void *handle_;
    std::string path_;
};

/** Functions that the adapters need besides those that the transport uses (`symbols()`). Members
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

/** Looks up every symbol; otherwise the name of the first missing one is in `missing`. */
bool resolve(const UcxLibrary &ucx, Functions &functions, Symbols &symbols, std::string &missing);

}  // namespace gpushm::abi
