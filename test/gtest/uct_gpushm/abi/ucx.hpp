// SPDX-License-Identifier: BSD-3-Clause
// The UCX under test is the libucp.so.0 that the dynamic linker finds, so LD_LIBRARY_PATH selects
// it.
#pragma once

#include "uct_gpushm/abi/layout.hpp"
#include "uct_gpushm/abi/ucx_library.hpp"

#include <uct/api/uct.h>

#include <memory>
#include <string>
#include <vector>

namespace abi_test {

/** The functions of libuct's public API that the tests call. */
struct Uct {
    decltype(&::uct_query_components) query_components;
    decltype(&::uct_release_component_list) release_component_list;
    decltype(&::uct_component_query) component_query;
    decltype(&::uct_md_config_read) md_config_read;
    decltype(&::uct_md_open) md_open;
    decltype(&::uct_md_close) md_close;
    decltype(&::uct_md_query) md_query;
    decltype(&::uct_md_mem_query) md_mem_query;
    decltype(&::uct_md_mem_reg) md_mem_reg;
    decltype(&::uct_md_mem_dereg) md_mem_dereg;
    decltype(&::uct_md_detect_memory_type) md_detect_memory_type;
    decltype(&::uct_md_query_tl_resources) md_query_tl_resources;
    decltype(&::uct_release_tl_resource_list) release_tl_resource_list;
    decltype(&::uct_rkey_unpack) rkey_unpack;
    decltype(&::uct_rkey_release) rkey_release;
    decltype(&::uct_md_mkey_pack) md_mkey_pack;
    decltype(&::uct_mem_alloc) mem_alloc;
    decltype(&::uct_mem_free) mem_free;
    decltype(&::uct_worker_create) worker_create;
    decltype(&::uct_worker_destroy) worker_destroy;
    decltype(&::uct_md_iface_config_read) md_iface_config_read;
    decltype(&::uct_config_release) config_release;
    decltype(&::uct_config_get) config_get;
    decltype(&::uct_config_modify) config_modify;
    decltype(&::uct_iface_open) iface_open;
    decltype(&::uct_iface_close) iface_close;
    decltype(&::uct_iface_query) iface_query;
    decltype(&::uct_iface_get_address) iface_get_address;
    decltype(&::uct_iface_get_device_address) iface_get_device_address;
    decltype(&::uct_iface_is_reachable) iface_is_reachable;
    decltype(&::uct_iface_set_am_handler) iface_set_am_handler;
    int (*iface_is_reachable_v2)(uct_iface_h iface, const void *params);  // not in all headers
    ucs_status_t (*iface_estimate_perf)(uct_iface_h iface, void *perf_attr);
    ucs_status_t (*md_mem_dereg_v2)(uct_md_h md, const void *params);
    decltype(&::ucs_async_context_create) async_context_create;
    decltype(&::ucs_async_context_destroy) async_context_destroy;
};

/** The UCX under test. Without one the process ends with a message. */
class Ucx {
public:
    static const Ucx &get();

    Uct uct{};
    gpushm::abi::Version version{};
    /** Null: an unknown version. */
    const gpushm::abi::Layout *layout = nullptr;

    /** Null: this UCX does not export it. */
    void *symbol(const char *name) const { return library_->symbol(name); }
    const std::string &path() const { return library_->path(); }
    const void *code() const { return reinterpret_cast<const void *>(uct.query_components); }

    /** All components, as uct_query_components lists them. */
    std::vector<uct_component_h> components() const;
    uct_component_h component(const std::string &name) const;

private:
    Ucx();
    std::unique_ptr<gpushm::abi::UcxLibrary> library_;
};

/** Whether an address is code (or, otherwise, any loaded byte) of a library or the program. */
bool is_code(const void *address);
bool is_loaded(const void *address);

/** A memory domain of UCX or gpushm, opened with the public API. */
class OpenMd {
public:
    OpenMd(uct_component_h component, const char *name);
    ~OpenMd();
    OpenMd(const OpenMd &) = delete;
    OpenMd &operator=(const OpenMd &) = delete;

    uct_md_h get() const { return md_; }

private:
    uct_md_h md_ = nullptr;
};

/** An interface on the first device of a domain, with a worker of its own. */
class OpenIface {
public:
    /** `wanted`: the parameters that do not select the device. */
    OpenIface(uct_md_h md, const char *tl_name, const uct_iface_params_t &wanted = {});
    ~OpenIface();
    OpenIface(const OpenIface &) = delete;
    OpenIface &operator=(const OpenIface &) = delete;

    /** Null: it could not be opened. */
    uct_iface_h get() const { return iface_; }
    /** The status of the attempt to open it. */
    ucs_status_t status() const { return status_; }

private:
    ucs_status_t status_ = UCS_ERR_NO_DEVICE;
    ucs_async_context_t *async_ = nullptr;
    uct_worker_h worker_ = nullptr;
    uct_iface_h iface_ = nullptr;
};

/** More bytes than the struct under test, filled with a pattern that shows which bytes were
 * written. */
class Canvas {
public:
    explicit Canvas(size_t size);
    void *data() { return bytes_.data(); }
    template <typename T>
    T get(size_t offset) const {
        return gpushm::abi::load<T>(bytes_.data(), offset);
    }
    template <typename T>
    void set(size_t offset, const T &value) {
        gpushm::abi::store(bytes_.data(), offset, value);
    }
    bool is_untouched(size_t offset, size_t length) const;
    /** Whether no byte behind the struct was written. */
    bool is_tail_untouched() const { return is_untouched(size_, kTail); }

private:
    static constexpr size_t kTail = 128;
    size_t size_;
    alignas(16) std::vector<unsigned char> bytes_;
};

}  // namespace abi_test
