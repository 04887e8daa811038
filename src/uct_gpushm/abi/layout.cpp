// SPDX-License-Identifier: BSD-3-Clause
// The layouts of UCX 1.13 to 1.23, one function for each minor release. Each but the first starts
// from its predecessor and says what that release inserted, appended or removed; layout.hpp names
// the UCX file of each structure. They are valid for LP64 platforms and builds without statistics.
// test/gtest/uct_gpushm/abi/headers_test.cpp compares them with UCX's headers, layout_test.cpp with
// the running library.
#include "uct_gpushm/abi/layout.hpp"

#include "uct_gpushm/abi/served_versions.hpp"

#include <array>

namespace gpushm::abi {
namespace {

constexpr size_t kWord = sizeof(void *);

constexpr uint64_t bits_below(unsigned bit) {
    return (uint64_t{1} << bit) - 1;
}

// The first release that is served.
constexpr Layout ucx_1_13() {
    Layout ucx{};
    ucx.minor = 13;

    using Component = ComponentField;
    ucx.component.append(Component::name, 16)
        .append_words(Component::query_md_resources, Component::rkey_release)
        .append(Component::md_config, 48)
        .append(Component::cm_config, 48)
        .append(Component::tl_list, 16)
        .append(Component::list, 16)
        .append_words(Component::flags, Component::md_vfs_init);
    ucx.config_entry.append_words(ConfigEntryField::name, ConfigEntryField::size)
        .append(ConfigEntryField::list, 16);
    ucx.config_option.append_words(ConfigOptionField::name, ConfigOptionField::parser_help)
        .append(ConfigOptionField::parser_arg);
    ucx.tl.append(TlField::name, 16)
        .append_words(TlField::query_devices, TlField::iface_open)
        .append(TlField::config, 48)
        .append(TlField::list, 16);
    ucx.md_ops.append_words(MdOp::close, MdOp::mkey_pack)
        .append_words(MdOp::is_sockaddr_accessible, MdOp::detect_memory_type);
    ucx.internal_ops.append_words(InternalOp::iface_estimate_perf, InternalOp::iface_vfs_refresh)
        .append_words(InternalOp::ep_query, InternalOp::ep_invalidate);

    using Md = MdAttrField;
    ucx.md_attr.append_words(Md::max_alloc, Md::reg_mem_types)
        .append_words(Md::detect_mem_types, Md::access_mem_types)
        .append(Md::reg_cost, 16)
        .append(Md::component_name, 16)
        .append(Md::rkey_packed_size)
        .append(Md::local_cpus, 128);
    ucx.mem_attr
        .insert_gap(0, kWord)  // the field mask
        .append(MemAttrField::mem_type, 4)
        .append(MemAttrField::sys_dev, 4)
        .append_words(MemAttrField::base_address, MemAttrField::alloc_length);
    using Perf = PerfAttrField;
    ucx.perf_attr
        .insert_gap(0, kWord)  // the field mask
        .append(Perf::operation, 4)
        .append(Perf::local_memory_type, 4)
        .append(Perf::remote_memory_type, 4)
        .append(Perf::local_sys_device, 1)
        .append(Perf::remote_sys_device, 3)  // with 2 bytes of padding
        .append_words(Perf::send_pre_overhead, Perf::recv_overhead)
        .append(Perf::bandwidth, 16)
        .append(Perf::latency, 16)
        .append(Perf::max_inflight_eps);
    ucx.reachable
        .insert_gap(0, kWord)  // the field mask
        .append_words(ReachableField::device_addr, ReachableField::info_string_length);

    ucx.md_flags = bits_below(9);
    ucx.iface_ctl_device = kAbsent;
    return ucx;
}

// uct_md_attr_v2_t replaces uct_md_attr_t, and uct_md_mem_reg_params_t the flags of mem_reg.
constexpr Layout ucx_1_14() {
    Layout ucx = ucx_1_13();
    ucx.minor = 14;
    ucx.md_ops.insert(MdOp::mem_attach, 72);
    ucx.internal_ops.append(InternalOp::ep_connect_to_ep_v2);
    ucx.md_attr.insert(MdAttrField::field_mask, 0);
    ucx.md_attr.insert(MdAttrField::cache_mem_types, 40);
    ucx.md_attr.insert(MdAttrField::dmabuf_mem_types, 72);
    ucx.md_attr.append(MdAttrField::exported_mkey_packed_size);
    ucx.md_attr.append(MdAttrField::global_id, 256);
    ucx.mem_attr.append(MemAttrField::dmabuf_fd).append(MemAttrField::dmabuf_offset);
    ucx.signatures.mem_reg_takes_params = true;
    ucx.md_flags = bits_below(11);
    return ucx;
}

// ucs_config_global_list_entry_t gains flags, which also moves the members behind it.
constexpr Layout ucx_1_15() {
    Layout ucx = ucx_1_14();
    ucx.minor = 15;
    ucx.config_entry.append(ConfigEntryField::flags);
    ucx.component.insert_gap(112, kWord).insert_gap(168, kWord);  // the larger md and cm entries
    ucx.tl.insert_gap(80, kWord);                                 // the larger entry
    ucx.internal_ops.append(InternalOp::iface_is_reachable_v2);
    ucx.md_attr.insert(MdAttrField::reg_nonblock_mem_types, 40);
    ucx.reachable.append(ReachableField::scope);
    ucx.md_flags = bits_below(13);
    return ucx;
}

// uct_component_t gains rkey_compare, and mkey_pack gets the address and length of the memory.
constexpr Layout ucx_1_16() {
    Layout ucx = ucx_1_15();
    ucx.minor = 16;
    ucx.component.insert(ComponentField::rkey_compare, 64);
    ucx.md_ops.remove(MdOp::is_sockaddr_accessible);
    ucx.internal_ops.append(InternalOp::ep_is_connected);
    ucx.md_attr.append(MdAttrField::reg_alignment);
    ucx.signatures.mkey_pack_takes_address = true;
    return ucx;
}

// ucs_config_parser_t gains doc.
constexpr Layout ucx_1_17() {
    Layout ucx = ucx_1_16();
    ucx.minor = 17;
    ucx.config_option.insert(ConfigOptionField::parser_doc, 72);
    ucx.perf_attr.append(PerfAttrField::flags);
    return ucx;
}

// is_reachable gets the lengths of the addresses.
constexpr Layout ucx_1_18() {
    Layout ucx = ucx_1_17();
    ucx.minor = 18;
    ucx.md_attr.insert(MdAttrField::gva_mem_types, 56);
    ucx.reachable.append(ReachableField::device_addr_length);
    ucx.reachable.append(ReachableField::iface_addr_length);
    return ucx;
}

// uct_perf_attr_t gains path_bandwidth; mem_alloc gets a device and rkey_unpack parameters.
constexpr Layout ucx_1_19() {
    Layout ucx = ucx_1_18();
    ucx.minor = 19;
    ucx.perf_attr.insert(PerfAttrField::path_bandwidth, 64, 16);
    ucx.signatures.mem_alloc_takes_sys_dev = true;
    ucx.signatures.rkey_unpack_takes_params = true;
    ucx.md_flags = bits_below(14);
    return ucx;
}

// uct_iface_internal_ops_t gains iface_query_v2 and the packing of memory elements.
constexpr Layout ucx_1_20() {
    Layout ucx = ucx_1_19();
    ucx.minor = 20;
    ucx.internal_ops.insert(InternalOp::iface_query_v2, 0);
    ucx.internal_ops.insert(InternalOp::iface_mem_element_pack, 24);
    ucx.internal_ops.append(InternalOp::ep_get_device_ep);
    return ucx;
}

// 1.21 was branched off without iface_query_v2 of 1.20. It moves the packing of memory elements
// from the interface to the memory domain.
constexpr Layout ucx_1_21() {
    Layout ucx = ucx_1_20();
    ucx.minor = 21;
    ucx.internal_ops.remove(InternalOp::iface_query_v2);
    ucx.internal_ops.remove(InternalOp::iface_mem_element_pack);
    ucx.md_ops.append(MdOp::mem_elem_pack);
    return ucx;
}

// iface_query_v2 is back. The branch of 1.22 appends mem_elem_release to uct_md_ops_t after 1.22.0,
// where gpushm's table has a stub.
constexpr Layout ucx_1_22() {
    Layout ucx = ucx_1_21();
    ucx.minor = 22;
    ucx.internal_ops.insert(InternalOp::iface_query_v2, 0);
    ucx.internal_ops.append(InternalOp::ep_put_sgl_zcopy);
    ucx.md_attr.append(MdAttrField::required_mem_flags);
    ucx.mem_attr.append(MemAttrField::mem_flags);
    ucx.iface_ctl_device = 532;
    return ucx;
}

// The release of memory elements, and more endpoint operations.
constexpr Layout ucx_1_23() {
    Layout ucx = ucx_1_22();
    ucx.minor = 23;
    ucx.md_ops.append(MdOp::mem_elem_release);
    ucx.internal_ops.append(InternalOp::ep_get_sgl_zcopy);
    ucx.internal_ops.append(InternalOp::ep_outstanding_purge);
    return ucx;
}

constexpr std::array kLayouts = {ucx_1_13(), ucx_1_14(), ucx_1_15(), ucx_1_16(),
                                 ucx_1_17(), ucx_1_18(), ucx_1_19(), ucx_1_20(),
                                 ucx_1_21(), ucx_1_22(), ucx_1_23()};

// sizeof() of the structs in the headers of these releases.
static_assert(ucx_1_13().component.size() == 208 && ucx_1_15().component.size() == 224 &&
              ucx_1_23().component.size() == 232);
static_assert(ucx_1_13().tl.size() == 96 && ucx_1_23().tl.size() == 104);
static_assert(ucx_1_13().config_entry.size() == 48 && ucx_1_23().config_entry.size() == 56);
static_assert(ucx_1_16().config_option.size() == 80 && ucx_1_17().config_option.size() == 88);
static_assert(ucx_1_13().md_ops.size() == 88 && ucx_1_15().md_ops.size() == 96 &&
              ucx_1_20().md_ops.size() == 88 && ucx_1_22().md_ops.size() == 96 &&
              ucx_1_23().md_ops.size() == 104);
static_assert(ucx_1_13().internal_ops.size() == 32 && ucx_1_16().internal_ops.size() == 56 &&
              ucx_1_20().internal_ops.size() == 80 && ucx_1_21().internal_ops.size() == 64 &&
              ucx_1_22().internal_ops.size() == 80 && ucx_1_23().internal_ops.size() == 96);
static_assert(ucx_1_13().md_attr.size() == 224 && ucx_1_14().md_attr.size() == 512 &&
              ucx_1_15().md_attr.size() == 520 && ucx_1_17().md_attr.size() == 528 &&
              ucx_1_21().md_attr.size() == 536 && ucx_1_23().md_attr.size() == 544);
static_assert(ucx_1_13().mem_attr.size() == 32 && ucx_1_21().mem_attr.size() == 48 &&
              ucx_1_23().mem_attr.size() == 56);
static_assert(ucx_1_16().perf_attr.size() == 88 && ucx_1_18().perf_attr.size() == 96 &&
              ucx_1_23().perf_attr.size() == 112);
static_assert(ucx_1_13().reachable.size() == 40 && ucx_1_17().reachable.size() == 48 &&
              ucx_1_23().reachable.size() == 64);
static_assert(ucx_1_23().md_ops.size() <= kMaxCallbacks * kWord &&
              ucx_1_23().internal_ops.size() <= kMaxCallbacks * kWord);

}  // namespace

const Layout *find_layout(unsigned major, unsigned minor) {
    if (major != 1) {
        return nullptr;
    }
    for (const Layout &layout : kLayouts) {
        if (layout.minor == minor) {
            return &layout;
        }
    }
    return nullptr;
}

const Layout &oldest_layout() {
    return kLayouts.front();
}

std::string served_versions() {
    return "1." + std::to_string(oldest_layout().minor) + " to 1." +
           std::to_string(kLayouts.back().minor);
}

std::string why_not_served(const Version &version, bool statistics, const std::string &path) {
    const std::string name = "UCX " + to_string(version) + " (" + path + ")";
    if (version.major < 1 || (version.major == 1 && version.minor < oldest_layout().minor)) {
        return name + " is too old, gpushm serves UCX " + served_versions() +
               ": install a newer UCX";
    }
    if (find_layout(version.major, version.minor) == nullptr) {
        return name + " is not known, gpushm serves UCX " + served_versions() +
               ": install a newer gpushm";
    }
    if (statistics) {
        return name +
               " was built with statistics, which gpushm does not serve: use a UCX that was "
               "configured without --enable-stats";
    }
    return {};
}

}  // namespace gpushm::abi
