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

/** The layout of a table of function pointers in this order. */
template <typename Field, size_t count>
constexpr StructLayout<Field> words(const Field (&fields)[count]) {
    StructLayout<Field> layout;
    for (Field field : fields) {
        layout.append(field);
    }
    return layout;
}

constexpr StructLayout<ComponentField> component_1_13() {
    using F = ComponentField;
    StructLayout<F> layout;
    layout.append(F::name, 16).append(F::query_md_resources).append(F::md_open);
    layout.append(F::cm_open).append(F::rkey_unpack).append(F::rkey_ptr).append(F::rkey_release);
    layout.append(F::md_config, 48).append(F::cm_config, 48);
    layout.append(F::tl_list, 16).append(F::list, 16);
    return layout.append(F::flags).append(F::md_vfs_init);
}

constexpr StructLayout<TlField> tl_1_13() {
    using F = TlField;
    StructLayout<F> layout;
    layout.append(F::name, 16).append(F::query_devices).append(F::iface_open);
    return layout.append(F::config, 48).append(F::list, 16);
}

constexpr StructLayout<ConfigEntryField> config_entry_1_13() {
    using F = ConfigEntryField;
    StructLayout<F> layout;
    layout.append(F::name).append(F::prefix).append(F::table).append(F::size);
    return layout.append(F::list, 16);
}

constexpr StructLayout<MdAttrField> md_attr_1_13() {
    using F = MdAttrField;
    StructLayout<F> layout;
    layout.append(F::max_alloc).append(F::max_reg).append(F::flags).append(F::reg_mem_types);
    layout.append(F::detect_mem_types).append(F::alloc_mem_types).append(F::access_mem_types);
    layout.append(F::reg_cost, 16).append(F::component_name, 16).append(F::rkey_packed_size);
    return layout.append(F::local_cpus, 128);
}

constexpr StructLayout<MemAttrField> mem_attr_1_13() {
    using F = MemAttrField;
    StructLayout<F> layout{kWord};  // the field mask
    layout.append(F::mem_type, 4).append(F::sys_dev, 4);
    return layout.append(F::base_address).append(F::alloc_length);
}

constexpr StructLayout<PerfAttrField> perf_attr_1_13() {
    using F = PerfAttrField;
    StructLayout<F> layout{kWord};  // the field mask
    layout.append(F::operation, 4).append(F::local_memory_type, 4);
    layout.append(F::remote_memory_type, 4);
    layout.append(F::local_sys_device, 1).append(F::remote_sys_device, 3);
    layout.append(F::send_pre_overhead).append(F::send_post_overhead).append(F::recv_overhead);
    return layout.append(F::bandwidth, 16).append(F::latency, 16).append(F::max_inflight_eps);
}

constexpr StructLayout<ReachableField> reachable_1_13() {
    using F = ReachableField;
    StructLayout<F> layout{kWord};  // the field mask
    layout.append(F::device_addr).append(F::iface_addr);
    return layout.append(F::info_string).append(F::info_string_length);
}

// The first release that is served.
constexpr Layout ucx_1_13() {
    Layout ucx{};
    ucx.minor = 13;
    ucx.component = component_1_13();
    ucx.config_entry = config_entry_1_13();
    ucx.config_option = words<ConfigOptionField>(
        {ConfigOptionField::name, ConfigOptionField::dfl_value, ConfigOptionField::doc,
         ConfigOptionField::offset, ConfigOptionField::parser_read, ConfigOptionField::parser_write,
         ConfigOptionField::parser_clone, ConfigOptionField::parser_release,
         ConfigOptionField::parser_help, ConfigOptionField::parser_arg});
    ucx.tl = tl_1_13();
    ucx.md_ops =
        words<MdOp>({MdOp::close, MdOp::query, MdOp::mem_alloc, MdOp::mem_free, MdOp::mem_advise,
                     MdOp::mem_reg, MdOp::mem_dereg, MdOp::mem_query, MdOp::mkey_pack,
                     MdOp::is_sockaddr_accessible, MdOp::detect_memory_type});
    ucx.internal_ops =
        words<InternalOp>({InternalOp::iface_estimate_perf, InternalOp::iface_vfs_refresh,
                           InternalOp::ep_query, InternalOp::ep_invalidate});
    ucx.md_attr = md_attr_1_13();
    ucx.mem_attr = mem_attr_1_13();
    ucx.perf_attr = perf_attr_1_13();
    ucx.reachable = reachable_1_13();
    ucx.signatures = {};
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
