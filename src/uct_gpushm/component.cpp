// SPDX-License-Identifier: BSD-3-Clause
// The component as UCX sees it: its memory domains, its transport and its options.
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "openmpi/setup/attachment.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/config.hpp"
#include "uct_gpushm/memory_copy_domain.hpp"
#include "uct_gpushm/memory_copy_interface.hpp"
#include "uct_gpushm/shared_memory_domain.hpp"
#include "uct_gpushm/shared_memory_ops.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpushm::uct {
namespace {

// At most UCT_MD_NAME_MAX - 1 = 15 characters.
constexpr const char *kSharedMemoryDomain = "gpushm";
constexpr const char *kMemoryCopyDomain = "gpucopy";

ucs_log_level_t to_ucs_level(LogLevel level) {
    switch (level) {
        case LogLevel::error:
            return UCS_LOG_LEVEL_ERROR;
        case LogLevel::warn:
            return UCS_LOG_LEVEL_WARN;
        case LogLevel::debug:
            break;
    }
    return UCS_LOG_LEVEL_DEBUG;
}

void log_to_ucx(LogLevel level, const char *, unsigned, const char *, const char *message) {
    abi::log_line(to_ucs_level(level), "gpushm: %s", message);
}

/** Without a CUDA driver there is nothing to copy. UCP then does not detect memory types at all,
 * and programs without a GPU pay nothing. */
std::vector<std::string> domain_names() {
    if (CudaDriver::get() == nullptr) {
        return {kSharedMemoryDomain};
    }
    return {kSharedMemoryDomain, kMemoryCopyDomain};
}

std::unique_ptr<abi::MemoryDomain> open_domain(const std::string &name) {
    if (name == domain_names().back()) {
        openmpi::attach();  // when UCX opens the last of the domains, so once
    }
    if (name == kMemoryCopyDomain) {
        return make_memory_copy_domain();
    }
    return make_shared_memory_domain();
}

std::string device_name(abi::MemoryDomain &domain) {
    return static_cast<Domain &>(domain).device_name();
}

ucs_status_t open_interface(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                            const uct_iface_config_t *config, uct_iface_h *iface) {
    const auto &domain = static_cast<Domain &>(abi::memory_domain(md));
    if (domain.interface_kind() == InterfaceKind::memory_copy) {
        openmpi::attach();
    }
    return domain.interface_kind() == InterfaceKind::shared_memory
               ? open_shared_memory_interface(md, worker, params, config, iface)
               : open_memory_copy_interface(md, worker, params, config, iface);
}

}  // namespace
}  // namespace gpushm::uct

namespace gpushm::abi {

const ComponentDescription &component_description() {
    static const ComponentDescription description = [] {
        set_log_sink(uct::log_to_ucx);
        ComponentDescription component = {};
        component.name = "gpushm";
        component.md_names = uct::domain_names;
        component.md_open = uct::open_domain;
        component.rkey_unpack = uct::unpack_rkey;
        component.rkey_release = uct::release_rkey;
        component.tl_name = "gpushm";
        component.device_name = uct::device_name;
        component.iface_open = uct::open_interface;
        component.config_prefix = "GPUSHM_";
        component.options = uct::options();
        component.config_size = sizeof(uct::InterfaceConfig);
        return component;
    }();
    return description;
}

}  // namespace gpushm::abi
