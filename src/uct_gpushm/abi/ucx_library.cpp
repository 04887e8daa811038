// SPDX-License-Identifier: BSD-3-Clause
// A process may have several UCX: that of the system, and one of a Python wheel or a private Open
// MPI, each loaded with RTLD_LOCAL. So no symbol is looked up globally, and the plugin is not
// linked to any UCX library.
#include "uct_gpushm/abi/ucx_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <memory>
#include <vector>

namespace gpushm::abi {
namespace {

struct CloseHandle {
    void operator()(void *handle) const { dlclose(handle); }
};
using Handle = std::unique_ptr<void, CloseHandle>;

/** A handle of a loaded object. "": the program. */
Handle open_loaded(const char *name) {
    return Handle{dlopen(*name == '\0' ? nullptr : name, RTLD_LAZY | RTLD_NOLOAD)};
}

const link_map *object_of(const void *code) {
    Dl_info info;
    link_map *object = nullptr;
    if (dladdr1(code, &info, reinterpret_cast<void **>(&object), RTLD_DL_LINKMAP) == 0) {
        return nullptr;
    }
    return object;
}

int collect_name(dl_phdr_info *info, size_t, void *names) {
    static_cast<std::vector<std::string> *>(names)->emplace_back(info->dlpi_name);
    return 0;
}

/** The first handle of a loaded object for which `is_it` holds. */
template <typename Predicate>
Handle find_object(Predicate is_it) {
    std::vector<std::string> names;
    dl_iterate_phdr(collect_name, &names);  // dlopen would deadlock inside of the callback
    for (const std::string &name : names) {
        Handle handle = open_loaded(name.c_str());
        if (handle && is_it(handle.get())) {
            return handle;
        }
    }
    return nullptr;
}

constexpr char kUctSymbol[] = "uct_md_open";  // also in releases that are too old
constexpr char kUcsSymbol[] = "ucs_log_dispatch";
constexpr char kVersionSymbol[] = "ucp_get_version";

Version ask_version(void *libucp) {
    Version version{};
    const auto get = reinterpret_cast<void (*)(unsigned *, unsigned *, unsigned *)>(
        dlsym(libucp, kVersionSymbol));
    get(&version.major, &version.minor, &version.release);
    return version;
}

/** The loaded libucp that uses the libuct with this function. */
Handle find_libucp(const void *uct_symbol) {
    return find_object([uct_symbol](void *candidate) {
        return dlsym(candidate, kVersionSymbol) != nullptr &&
               dlsym(candidate, kUctSymbol) == uct_symbol;
    });
}

}  // namespace

UcxLibrary::UcxLibrary(void *handle, const void *code) : handle_(handle) {
    if (const link_map *object = object_of(code)) {
        path_ = object->l_name;
    }
}

std::optional<UcxLibrary> UcxLibrary::find(const void *asking_code) {
    const link_map *asking = object_of(asking_code);
    if (asking == nullptr) {
        return std::nullopt;
    }
    Handle handle = open_loaded(asking->l_name);
    void *uct = handle ? dlsym(handle.get(), kUctSymbol) : nullptr;
    if (uct == nullptr) {
        // A libucs is not linked to the libuct that uses it.
        handle = find_object([asking](void *candidate) {
            void *ucs = dlsym(candidate, kUcsSymbol);
            return dlsym(candidate, kUctSymbol) != nullptr && ucs != nullptr &&
                   object_of(ucs) == asking;
        });
        uct = handle ? dlsym(handle.get(), kUctSymbol) : nullptr;
    }
    const link_map *libuct = uct != nullptr ? object_of(uct) : nullptr;
    if (libuct == nullptr) {
        return std::nullopt;
    }
    handle = open_loaded(libuct->l_name);
    if (!handle) {
        return std::nullopt;
    }
    return UcxLibrary{handle.release(),
                      uct};  // stays open: this libuct gets pointers to the plugin
}

void *UcxLibrary::symbol(const char *name) const {
    return dlsym(handle_, name);
}

void *UcxLibrary::variable(const char *name) const {
    // Like the dynamic linker: first the global scope, then that of the library.
    void *const global = dlsym(RTLD_DEFAULT, name);
    return global != nullptr ? global : symbol(name);
}

std::optional<Version> UcxLibrary::version() const {
    void *const ours = symbol(kUctSymbol);
    Handle libucp = find_libucp(ours);
    if (!libucp) {
        const size_t name_begin = path_.rfind('/');
        if (name_begin == std::string::npos) {
            return std::nullopt;
        }
        const std::string sibling = path_.substr(0, name_begin + 1) + "libucp.so.0";
        libucp.reset(dlopen(sibling.c_str(), RTLD_LAZY | RTLD_LOCAL));
        if (!libucp || dlsym(libucp.get(), kUctSymbol) != ours ||
            dlsym(libucp.get(), kVersionSymbol) == nullptr) {
            return std::nullopt;
        }
    }
    return ask_version(libucp.get());
}

void *UcxLibrary::ucp_symbol(const char *name) const {
    const Handle libucp = find_libucp(symbol(kUctSymbol));
    return libucp ? dlsym(libucp.get(), name) : nullptr;
}

namespace {

/** Looks symbols up, and notes the first missing one. */
class Resolver {
public:
    Resolver(const UcxLibrary &ucx, std::string &missing) : ucx_(ucx), missing_(missing) {}

    template <typename T>
    void need(const char *name, T *&function) {
        want(name, function);
        note(name, function != nullptr);
    }
    template <typename T>
    void need_variable(const char *name, T *&variable) {
        want_variable(name, variable);
        note(name, variable != nullptr);
    }
    /** Null: this UCX does not export the symbol. */
    template <typename T>
    void want_variable(const char *name, T *&variable) {
        variable = static_cast<T *>(ucx_.variable(name));
    }
    template <typename T>
    void want(const char *name, T *&function) {
        function = reinterpret_cast<T *>(ucx_.symbol(name));
    }

private:
    void note(const char *name, bool found) {
        if (!found && missing_.empty()) {
            missing_ = name;
        }
    }

    const UcxLibrary &ucx_;
    std::string &missing_;
};

void resolve_functions(Resolver ucx, Functions &functions) {
    ucx.need("uct_component_register", functions.component_register);
    ucx.need("uct_tl_register", functions.tl_register);
    ucx.need_variable("uct_components_list", functions.components_list);
    ucx.need("ucs_malloc", functions.ucs_malloc);
    ucx.need("uct_single_device_resource", functions.single_device_resource);
    ucx.need_variable("uct_base_iface_t_class", functions.base_iface_class);
    ucx.need("uct_base_iface_t_init", functions.base_iface_init);
    ucx.need("ucs_class_call_cleanup_chain", functions.class_cleanup);
    ucx.need("uct_base_iface_query", functions.base_iface_query);
    ucx.need("uct_base_iface_progress_enable", functions.progress_enable);
    ucx.need("uct_base_iface_progress_disable", functions.progress_disable);
    ucx.need("uct_base_iface_estimate_perf", functions.base_iface_estimate_perf);
    ucx.need_variable("uct_iface_config_table", functions.iface_config_table);
    ucx.need_variable("uct_md_config_table", functions.md_config_table);
    ucx.need("uct_component_query", functions.component_query);
    ucx.need("uct_md_config_read", functions.md_config_read);
    ucx.need("uct_md_open", functions.md_open);
    ucx.need("uct_config_release", functions.config_release);
    ucx.want("uct_base_rkey_compare", functions.base_rkey_compare);
    ucx.want("uct_iface_base_query_v2", functions.base_iface_query_v2);
}

void resolve_symbols(Resolver ucx, Symbols &symbols) {
    ucx.need("uct_iface_handle_ep_err", symbols.handle_ep_error);
    ucx.need("ucs_global_opts_set_value", symbols.global_opts_set_value);
    ucx.need_variable("ucs_memtype_cache_global_instance", symbols.memtype_cache_global_instance);
    ucx.need("ucs_memtype_cache_update", symbols.memtype_cache_update);
    ucx.need("ucm_event_enter", symbols.ucm_event_enter);
    ucx.need("ucm_event_leave", symbols.ucm_event_leave);
    ucx.need("ucm_event_dispatch", symbols.ucm_event_dispatch);
    ucx.need("ucs_log_dispatch", symbols.log_dispatch);
    ucx.want("ucm_set_event_handler", symbols.ucm_set_event_handler);
    ucx.want("ucm_bistro_patch", symbols.ucm_bistro_patch);
    ucx.want("ucs_topo_find_device_by_bus_id", symbols.topo_find_device_by_bus_id);
    ucx.want_variable("ucm_event_installer_list", symbols.ucm_event_installer_list);
}

}  // namespace

bool resolve(const UcxLibrary &ucx, Functions &functions, Symbols &symbols, std::string &missing) {
    resolve_functions({ucx, missing}, functions);
    resolve_symbols({ucx, missing}, symbols);
    return missing.empty();
}

}  // namespace gpushm::abi
