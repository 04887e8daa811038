// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/uct_gpushm/abi/ucx.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>

namespace abi_test {
namespace {

using gpushm::abi::UcxLibrary;

[[noreturn]] void give_up(const char *what) {
    std::fprintf(stderr, "no UCX to test: %s\n", what);
    std::exit(EXIT_FAILURE);
}

template <typename Function>
void find(const UcxLibrary &ucx, const char *name, Function &function) {
    function = reinterpret_cast<Function>(ucx.symbol(name));
    if (function == nullptr) {
        give_up(name);
    }
}

struct SegmentQuery {
    uintptr_t address;
    unsigned flags;
    bool found;
};

int look_at_object(dl_phdr_info *info, size_t, void *argument) {
    auto *query = static_cast<SegmentQuery *>(argument);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && (segment.p_flags & query->flags) == query->flags &&
            query->address >= begin && query->address < begin + segment.p_memsz) {
            query->found = true;
        }
    }
    return query->found;
}

bool in_segment(const void *address, unsigned flags) {
    SegmentQuery query{reinterpret_cast<uintptr_t>(address), flags, false};
    dl_iterate_phdr(look_at_object, &query);
    return query.found;
}

constexpr unsigned char pattern(size_t index) {
    return static_cast<unsigned char>(0xa5 ^ (index * 29));
}

}  // namespace

bool is_code(const void *address) {
    return in_segment(address, PF_R | PF_X);
}

bool is_loaded(const void *address) {
    return in_segment(address, PF_R);
}

const Ucx &Ucx::get() {
    static const Ucx ucx;
    return ucx;
}

Ucx::Ucx() {
    void *libucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (libucp == nullptr) {
        give_up(dlerror());
    }
    const std::optional<UcxLibrary> found = UcxLibrary::find(dlsym(libucp, "ucp_get_version"));
    if (!found || !found->version()) {
        give_up("its libuct was not found");
    }
    library_ = std::make_unique<UcxLibrary>(*found);
    version = *library_->version();
    layout = gpushm::abi::find_layout(version.major, version.minor);

    find(*library_, "uct_query_components", uct.query_components);
    find(*library_, "uct_release_component_list", uct.release_component_list);
    find(*library_, "uct_component_query", uct.component_query);
    find(*library_, "uct_md_config_read", uct.md_config_read);
    find(*library_, "uct_md_open", uct.md_open);
    find(*library_, "uct_md_close", uct.md_close);
    find(*library_, "uct_md_query", uct.md_query);
    find(*library_, "uct_md_mem_query", uct.md_mem_query);
    find(*library_, "uct_md_mem_reg", uct.md_mem_reg);
    find(*library_, "uct_md_mem_dereg", uct.md_mem_dereg);
    find(*library_, "uct_md_mem_dereg_v2", uct.md_mem_dereg_v2);
    find(*library_, "uct_md_detect_memory_type", uct.md_detect_memory_type);
    find(*library_, "uct_md_query_tl_resources", uct.md_query_tl_resources);
    find(*library_, "uct_release_tl_resource_list", uct.release_tl_resource_list);
    find(*library_, "uct_rkey_unpack", uct.rkey_unpack);
    find(*library_, "uct_rkey_release", uct.rkey_release);
    find(*library_, "uct_md_mkey_pack", uct.md_mkey_pack);
    find(*library_, "uct_mem_alloc", uct.mem_alloc);
    find(*library_, "uct_mem_free", uct.mem_free);
    find(*library_, "uct_worker_create", uct.worker_create);
    find(*library_, "uct_worker_destroy", uct.worker_destroy);
    find(*library_, "uct_md_iface_config_read", uct.md_iface_config_read);
    find(*library_, "uct_config_release", uct.config_release);
    find(*library_, "uct_config_get", uct.config_get);
    find(*library_, "uct_config_modify", uct.config_modify);
    find(*library_, "uct_iface_open", uct.iface_open);
    find(*library_, "uct_iface_close", uct.iface_close);
    find(*library_, "uct_iface_query", uct.iface_query);
    find(*library_, "uct_iface_get_address", uct.iface_get_address);
    find(*library_, "uct_iface_get_device_address", uct.iface_get_device_address);
    find(*library_, "uct_iface_is_reachable", uct.iface_is_reachable);
    find(*library_, "uct_iface_set_am_handler", uct.iface_set_am_handler);
    find(*library_, "uct_iface_is_reachable_v2", uct.iface_is_reachable_v2);
    find(*library_, "uct_iface_estimate_perf", uct.iface_estimate_perf);
    find(*library_, "ucs_async_context_create", uct.async_context_create);
    find(*library_, "ucs_async_context_destroy", uct.async_context_destroy);
}

std::vector<uct_component_h> Ucx::components() const {
    uct_component_h *list = nullptr;
    unsigned count = 0;
    if (uct.query_components(&list, &count) != UCS_OK) {
        return {};
    }
    std::vector<uct_component_h> components(list, list + count);
    uct.release_component_list(list);
    return components;
}

uct_component_h Ucx::component(const std::string &name) const {
    for (uct_component_h component : components()) {
        uct_component_attr_t attributes{};
        attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        if (uct.component_query(component, &attributes) == UCS_OK && attributes.name == name) {
            return component;
        }
    }
    return nullptr;
}

OpenMd::OpenMd(uct_component_h component, const char *name) {
    const Uct &uct = Ucx::get().uct;
    uct_md_config_t *config = nullptr;
    if (component == nullptr ||
        uct.md_config_read(component, nullptr, nullptr, &config) != UCS_OK) {
        return;
    }
    if (uct.md_open(component, name, config, &md_) != UCS_OK) {
        md_ = nullptr;
    }
    uct.config_release(config);
}

OpenMd::~OpenMd() {
    if (md_ != nullptr) {
        Ucx::get().uct.md_close(md_);
    }
}

OpenIface::OpenIface(uct_md_h md, const char *tl_name, const uct_iface_params_t &wanted) {
    const Uct &uct = Ucx::get().uct;
    uct_tl_resource_desc_t *resources = nullptr;
    unsigned count = 0;
    uct_iface_config_t *config = nullptr;
    if (uct.async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_) != UCS_OK ||
        uct.worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker_) != UCS_OK ||
        uct.md_query_tl_resources(md, &resources, &count) != UCS_OK ||
        uct.md_iface_config_read(md, tl_name, nullptr, nullptr, &config) != UCS_OK) {
        return;
    }
    for (unsigned i = 0; i < count; ++i) {
        if (iface_ != nullptr || std::string(resources[i].tl_name) != tl_name) {
            continue;
        }
        uct_iface_params_t params = wanted;
        params.field_mask |= UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
        params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name = resources[i].tl_name;
        params.mode.device.dev_name = resources[i].dev_name;
        status_ = uct.iface_open(md, worker_, &params, config, &iface_);
        if (status_ != UCS_OK) {
            iface_ = nullptr;
        }
    }
    uct.config_release(config);
    uct.release_tl_resource_list(resources);
}

OpenIface::~OpenIface() {
    const Uct &uct = Ucx::get().uct;
    if (iface_ != nullptr) {
        uct.iface_close(iface_);
    }
    if (worker_ != nullptr) {
        uct.worker_destroy(worker_);
    }
    if (async_ != nullptr) {
        uct.async_context_destroy(async_);
    }
}

Canvas::Canvas(size_t size) : size_(size), bytes_(size + kTail) {
    for (size_t i = 0; i < bytes_.size(); ++i) {
        bytes_[i] = pattern(i);
    }
}

bool Canvas::is_untouched(size_t offset, size_t length) const {
    for (size_t i = offset; i < offset + length; ++i) {
        if (bytes_[i] != pattern(i)) {
            return false;
        }
    }
    return true;
}

}  // namespace abi_test
