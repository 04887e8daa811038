// SPDX-License-Identifier: BSD-3-Clause
// Whether a UCP context uses cuda_copy (UCX_TLS) is not known when gpushm's domains are opened:
// they come first in UCX's list, and UCP tells no transport what it selects. But UCX opens the
// interfaces of a worker through a pointer in cuda_copy's uct_tl_t. That pointer is replaced here.
#include "uct_gpushm/abi/cuda_copy.hpp"

#include "uct_gpushm/abi/ucx_objects.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace gpushm::abi {
namespace {

constexpr char kComponentName[] = "cuda_cpy";  // src/uct/cuda/cuda_copy/cuda_copy_md.c
constexpr char kTlName[] = "cuda_copy";        // src/uct/cuda/cuda_copy/cuda_copy_iface.c

using IfaceOpen = ucs_status_t (*)(uct_md_h md, uct_worker_h worker,
                                   const uct_iface_params_t *params,
                                   const uct_iface_config_t *config, uct_iface_h *iface);
using IfaceClose = void (*)(uct_iface_h iface);

/** The open interfaces of cuda_copy. */
class OpenInterfaces {
public:
    static OpenInterfaces &instance() {
        static auto *const interfaces = new OpenInterfaces;
        return *interfaces;
    }

    void add(uct_iface_h iface, uct_worker_h worker, IfaceClose close) {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_[iface] = {worker, close};
    }
    IfaceClose remove(uct_iface_h iface) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto entry = open_.find(iface);
        const IfaceClose close = entry->second.close;
        open_.erase(entry);
        return close;
    }
    bool has(uct_worker_h worker) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return std::any_of(open_.begin(), open_.end(),
                           [worker](const auto &entry) { return entry.second.worker == worker; });
    }

private:
    struct Entry {
        uct_worker_h worker;
        IfaceClose close;
    };
    std::mutex mutex_;
    std::map<uct_iface_h, Entry> open_;
};

IfaceOpen original_iface_open;

void watched_iface_close(uct_iface_h iface) {
    OpenInterfaces::instance().remove(iface)(iface);
}

ucs_status_t watched_iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                                const uct_iface_config_t *config, uct_iface_h *iface) {
    const ucs_status_t status = original_iface_open(md, worker, params, config, iface);
    if (status == UCS_OK) {
        // Each interface has its own table of operations.
        OpenInterfaces::instance().add(*iface, worker, (*iface)->ops.iface_close);
        (*iface)->ops.iface_close = watched_iface_close;
    }
    return status;
}

void watch_interfaces(unsigned char *component) {
    const Layout &layout = *running().layout;
    auto *tls =
        reinterpret_cast<ucs_list_link_t *>(component + layout.component[ComponentField::tl_list]);
    unsigned char *tl =
        find_named(tls, layout.tl[TlField::list], layout.tl[TlField::name], kTlName);
    if (tl != nullptr) {
        original_iface_open = load<IfaceOpen>(tl, layout.tl[TlField::iface_open]);
        store(tl, layout.tl, TlField::iface_open, &watched_iface_open);
    }
}

/** Opens the component's first domain with default settings. Null: it has none. */
uct_md_h open_first_domain(uct_component_h component) {
    const Functions &ucx = running().functions;
    uct_component_attr_t attributes = {};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (ucx.component_query(component, &attributes) != UCS_OK ||
        attributes.md_resource_count == 0) {
        return nullptr;
    }
    std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains.data();
    uct_md_config_t *config = nullptr;
    uct_md_h md = nullptr;
    if (ucx.component_query(component, &attributes) != UCS_OK ||
        ucx.md_config_read(component, nullptr, nullptr, &config) != UCS_OK) {
        return nullptr;
    }
    const ucs_status_t status = ucx.md_open(component, domains[0].md_name, config, &md);
    ucx.config_release(config);
    return status == UCS_OK ? md : nullptr;
}

const CudaCopy *open_cuda_copy() {
    unsigned char *component = find_component(running(), kComponentName);
    uct_md_h md = component != nullptr
                      ? open_first_domain(reinterpret_cast<uct_component_h>(component))
                      : nullptr;
    if (md == nullptr) {
        return nullptr;
    }
    watch_interfaces(component);
    const auto *ops = load<const unsigned char *>(md, 0);  // struct uct_md, src/uct/base/uct_md.h
    const size_t mem_query = running().layout->md_ops[MdOp::mem_query];
    return new CudaCopy{md, load<decltype(CudaCopy::mem_query)>(ops, mem_query)};
}

}  // namespace

const CudaCopy *cuda_copy() {
    static const CudaCopy *const opened = open_cuda_copy();
    return opened;
}

bool find_cuda_copy() {
    return cuda_copy() != nullptr;
}

bool has_cuda_copy(uct_worker_h worker) {
    return OpenInterfaces::instance().has(worker);
}

}  // namespace gpushm::abi
