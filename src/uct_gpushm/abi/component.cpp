// SPDX-License-Identifier: BSD-3-Clause
// Makes UCX's uct_component_t and uct_tl_t from a ComponentDescription.
#include "uct_gpushm/abi/component.hpp"
#include "uct_gpushm/abi/callbacks.hpp"
#include "uct_gpushm/abi/rkey.hpp"

#include <utility>

namespace gpushm::abi {
namespace {

const ComponentDescription &description() {
    return *running().description;
}

/** An array that UCX releases with ucs_free. */
void *ucx_array(size_t bytes) {
    return running().functions.ucs_malloc(bytes, "gpushm");
}

ucs_status_t query_md_resources(void *, uct_md_resource_desc_t **resources, unsigned *count) {
    *resources = nullptr;
    *count = 0;
    // An error would fail ucp_init as a whole, so every error counts as "no domain".
    guarded([&] {
        const std::vector<std::string> names = description().md_names();
        if (names.empty()) {
            return UCS_OK;
        }
        auto *list = static_cast<uct_md_resource_desc_t *>(
            ucx_array(names.size() * sizeof(uct_md_resource_desc_t)));
        if (list == nullptr) {
            return UCS_ERR_NO_MEMORY;
        }
        for (size_t i = 0; i < names.size(); ++i) {
            list[i] = {};
            names[i].copy(list[i].md_name, sizeof(list[i].md_name) - 1);
        }
        *resources = list;
        *count = static_cast<unsigned>(names.size());
        return UCS_OK;
    });
    return UCS_OK;
}

ucs_status_t md_open(void *, const char *md_name, const void *, uct_md_h *md) {
    return guarded([&] {
        std::unique_ptr<MemoryDomain> domain = description().md_open(md_name);
        if (domain == nullptr) {
            return UCS_ERR_NO_DEVICE;
        }
        *md = make_md(std::move(domain));
        return UCS_OK;
    });
}

/** Without memory the result is UCT_INVALID_RKEY, and UCP does without the key. After an error UCP
 * before 1.22 would release keys that it has not unpacked (ucp_ep_rkey_unpack_internal(),
 * src/ucp/core/ucp_rkey.c). */
ucs_status_t rkey_unpack(void *, const void *buffer, uct_rkey_t *rkey, void **handle) {
    *rkey = UCT_INVALID_RKEY;
    *handle = nullptr;
    if (load<unsigned char>(buffer, 0) == kRkeyWithoutKey) {
        return UCS_OK;
    }
    const auto *key = static_cast<const unsigned char *>(buffer) + kRkeyHeaderSize;
    return guarded([&] { return description().rkey_unpack(key, rkey, handle); },
                   UCS_ERR_UNREACHABLE);
}

ucs_status_t rkey_unpack_params(void *component, const void *buffer, const void *, uct_rkey_t *rkey,
                                void **handle) {
    return rkey_unpack(component, buffer, rkey, handle);
}

ucs_status_t rkey_release(void *, uct_rkey_t rkey, void *handle) {
    if (rkey == UCT_INVALID_RKEY && handle == nullptr) {
        return UCS_OK;
    }
    return guarded([&] { return description().rkey_release(rkey, handle); });
}

ucs_status_t query_devices(uct_md_h md, void **devices, unsigned *count) {
    *devices = nullptr;
    *count = 0;
    return guarded([&] {
        const std::string name = description().device_name(memory_domain(md));
        if (name.empty()) {
            return UCS_OK;
        }
        return running().functions.single_device_resource(
            md, name.c_str(), UCT_DEVICE_TYPE_SHM, UCS_SYS_DEVICE_ID_UNKNOWN, devices, count);
    });
}

ucs_status_t iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                        const uct_iface_config_t *config, uct_iface_h *iface) {
    return guarded([&] { return description().iface_open(md, worker, params, config, iface); });
}

/** A zeroed object in the layout of the running UCX, which UCX keeps. */
template <typename Field>
class RawObject {
public:
    explicit RawObject(const StructLayout<Field> &layout)
        : layout_(layout), bytes_(new unsigned char[layout.size()]()) {}

    void *at(Field field) { return bytes_ + layout_[field]; }
    template <typename T>
    void set(Field field, const T &value) {
        store(bytes_, layout_, field, value);
    }
    void set_name(Field field, const std::string &name, size_t capacity) {
        name.copy(static_cast<char *>(at(field)), capacity - 1);
    }
    void *data() { return bytes_; }

private:
    const StructLayout<Field> &layout_;
    unsigned char *bytes_;  // never released: UCX cannot unregister a component
};

/** The ucs_config_global_list_entry_t in a component or transport. */
void fill_config_entry(void *entry, const char *name, const char *prefix, const void *table,
                       size_t size) {
    using F = ConfigEntryField;
    const StructLayout<F> &fields = running().layout->config_entry;
    store(entry, fields, F::name, name);
    store(entry, fields, F::prefix, prefix);
    store(entry, fields, F::table, table);
    store(entry, fields, F::size, size);
}

// src/uct/api/uct_def.h: UCT_COMPONENT_NAME_MAX, UCT_TL_NAME_MAX
constexpr size_t kComponentNameCapacity = 16;
constexpr size_t kTlNameCapacity = 10;
constexpr size_t kMdConfigSize = 1;  // the default domain has no options

void *build_component() {
    const Running &ucx = running();
    RawObject<ComponentField> component{ucx.layout->component};
    using F = ComponentField;
    component.set_name(F::name, description().name, kComponentNameCapacity);
    component.set(F::query_md_resources, any(query_md_resources));
    component.set(F::md_open, any(md_open));
    component.set(F::cm_open, any(unsupported));
    component.set(F::rkey_unpack, ucx.layout->signatures.rkey_unpack_takes_params
                                      ? any(rkey_unpack_params)
                                      : any(rkey_unpack));
    component.set(F::rkey_ptr, any(unsupported));
    component.set(F::rkey_release, any(rkey_release));
    component.set(F::rkey_compare, ucx.functions.base_rkey_compare);
    fill_config_entry(component.at(F::md_config), "gpushm memory domain",
                      description().config_prefix, ucx.functions.md_config_table, kMdConfigSize);
    fill_config_entry(component.at(F::cm_config), "", "", nullptr, 0);
    auto *tl_list = static_cast<ucs_list_link_t *>(component.at(F::tl_list));
    tl_list->prev = tl_list;
    tl_list->next = tl_list;
    component.set(F::md_vfs_init, any(do_nothing));
    return component.data();
}

void *build_tl(const void *option_table) {
    RawObject<TlField> tl{running().layout->tl};
    using F = TlField;
    tl.set_name(F::name, description().tl_name, kTlNameCapacity);
    tl.set(F::query_devices, any(query_devices));
    tl.set(F::iface_open, any(iface_open));
    fill_config_entry(tl.at(F::config), "gpushm transport", description().config_prefix,
                      option_table, description().config_size);
    return tl.data();
}

}  // namespace

void *component_object() {
    static void *const component = build_component();
    return component;
}

void register_objects(const void *option_table) {
    const Functions &functions = running().functions;
    functions.component_register(component_object());
    functions.tl_register(component_object(), build_tl(option_table));
}

}  // namespace gpushm::abi
