// SPDX-License-Identifier: BSD-3-Clause
// Compares the layout of one release with the headers of its source tree. Internal headers are not
// installed, so this is no part of make check: "contrib/check headers" builds it for each source
// tree.
#include "uct_gpushm/abi/layout.hpp"

extern "C" {
#include <uct/base/uct_component.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>

namespace gpushm::abi {
namespace {

/** The layout of the release of these headers. */
const Layout &layout() {
    static const Layout *const found = find_layout(UCT_VERNO_MAJOR, UCT_VERNO_MINOR);
    return *found;
}

/** Every enumerator of uct.h and uct_v2.h by name. Some exist in some releases only, and code
 * cannot ask the compiler whether an enumerator exists. contrib/ci/headers.sh writes
 * ucx_constants.inc. */
const std::map<std::string, uint64_t> &constants() {
    static const std::map<std::string, uint64_t> all = {
#include "ucx_constants.inc"
    };
    return all;
}

/** The value of a constant; 0: the release lacks it. */
uint64_t constant(const std::string &name) {
    const auto found = constants().find(name);
    return found == constants().end() ? 0 : found->second;
}

/** Returns the address of a member. Cannot be called for a struct without that member. */
#define MEMBER(path) [](auto *object) -> decltype(&object->path) { return &object->path; }

template <typename Struct, typename Member>
size_t offset_of(Member member) {
    if constexpr (std::is_invocable_v<Member, Struct *>) {
        alignas(Struct) static const char memory[sizeof(Struct)] = {};
        const void *const address = member(reinterpret_cast<const Struct *>(memory));
        return static_cast<size_t>(static_cast<const char *>(address) - memory);
    }
    return kAbsent;
}

/** Compares a struct with its layout, field by field. Every field has to be named. */
template <typename Struct, typename Field>
class Comparison {
public:
    explicit Comparison(const StructLayout<Field> &described) : described_{described} {
        EXPECT_EQ(described.size(), sizeof(Struct));
    }

    ~Comparison() { EXPECT_EQ(fields_.size(), described_.kFieldCount) << "not all are compared"; }

    /** Several members: the field has moved between releases. */
    template <typename... Members>
    void field(const char *name, Field field, Members... members) {
        EXPECT_EQ(described_[field], std::min({offset_of<Struct>(members)...})) << name;
        fields_.insert(field);
    }

private:
    const StructLayout<Field> &described_;
    std::set<Field> fields_;
};

#define FIELD(name) #name, F::name, MEMBER(name)
#define CAPABILITY(name) #name, F::name, MEMBER(name), MEMBER(cap.name)
#define PARSER(name) "parser." #name, F::parser_##name, MEMBER(parser.name)

template <typename Function>
struct Parameters;

template <typename Result, typename... All>
struct Parameters<Result (*)(All...)> {
    static constexpr size_t kCount = sizeof...(All);
    template <size_t index>
    using At = std::tuple_element_t<index, std::tuple<All...>>;
    /** The struct that a query fills. */
    using Filled = std::remove_pointer_t<At<kCount - 1>>;
};

using MdQuery = Parameters<decltype(uct_md_ops_t::query)>;
using MemQuery = Parameters<decltype(uct_md_ops_t::mem_query)>;

TEST(AbiHeaders, release_is_known) {
    ASSERT_NE(find_layout(UCT_VERNO_MAJOR, UCT_VERNO_MINOR), nullptr);
    EXPECT_EQ(layout().minor, unsigned{UCT_VERNO_MINOR});
}

TEST(AbiHeaders, component) {
    using F = ComponentField;
    Comparison<uct_component_t, F> compare{layout().component};
    compare.field(FIELD(name));
    compare.field(FIELD(query_md_resources));
    compare.field(FIELD(md_open));
    compare.field(FIELD(cm_open));
    compare.field(FIELD(rkey_unpack));
    compare.field(FIELD(rkey_ptr));
    compare.field(FIELD(rkey_release));
    compare.field(FIELD(rkey_compare));
    compare.field(FIELD(md_config));
    compare.field(FIELD(cm_config));
    compare.field(FIELD(tl_list));
    compare.field(FIELD(list));
    compare.field(FIELD(flags));
    compare.field(FIELD(md_vfs_init));
}

TEST(AbiHeaders, config_entry) {
    using F = ConfigEntryField;
    Comparison<ucs_config_global_list_entry_t, F> compare{layout().config_entry};
    compare.field(FIELD(name));
    compare.field(FIELD(prefix));
    compare.field(FIELD(table));
    compare.field(FIELD(size));
    compare.field(FIELD(list));
    compare.field(FIELD(flags));
}

TEST(AbiHeaders, config_option) {
    using F = ConfigOptionField;
    Comparison<ucs_config_field_t, F> compare{layout().config_option};
    compare.field(FIELD(name));
    compare.field(FIELD(dfl_value));
    compare.field(FIELD(doc));
    compare.field(FIELD(offset));
    compare.field(PARSER(read));
    compare.field(PARSER(write));
    compare.field(PARSER(clone));
    compare.field(PARSER(release));
    compare.field(PARSER(help));
    compare.field(PARSER(doc));
    compare.field(PARSER(arg));
}

TEST(AbiHeaders, transport) {
    using F = TlField;
    Comparison<uct_tl_t, F> compare{layout().tl};
    compare.field(FIELD(name));
    compare.field(FIELD(query_devices));
    compare.field(FIELD(iface_open));
    compare.field(FIELD(config));
    compare.field(FIELD(list));
}

TEST(AbiHeaders, memory_domain_operations) {
    using F = MdOp;
    Comparison<uct_md_ops_t, F> compare{layout().md_ops};
    compare.field(FIELD(close));
    compare.field(FIELD(query));
    compare.field(FIELD(mem_alloc));
    compare.field(FIELD(mem_free));
    compare.field(FIELD(mem_advise));
    compare.field(FIELD(mem_reg));
    compare.field(FIELD(mem_dereg));
    compare.field(FIELD(mem_query));
    compare.field(FIELD(mkey_pack));
    compare.field(FIELD(mem_attach));
    compare.field(FIELD(is_sockaddr_accessible));
    compare.field(FIELD(detect_memory_type));
    compare.field(FIELD(mem_elem_pack));
    compare.field(FIELD(mem_elem_release));
    EXPECT_LE(sizeof(uct_md_ops_t), kMaxCallbacks * sizeof(void *));
}

TEST(AbiHeaders, internal_operations) {
    using F = InternalOp;
    Comparison<uct_iface_internal_ops_t, F> compare{layout().internal_ops};
    compare.field(FIELD(iface_query_v2));
    compare.field(FIELD(iface_estimate_perf));
    compare.field(FIELD(iface_vfs_refresh));
    compare.field(FIELD(iface_mem_element_pack));
    compare.field(FIELD(ep_query));
    compare.field(FIELD(ep_invalidate));
    compare.field(FIELD(ep_connect_to_ep_v2));
    compare.field(FIELD(iface_is_reachable_v2));
    compare.field(FIELD(ep_is_connected));
    compare.field(FIELD(ep_get_device_ep));
    compare.field(FIELD(ep_put_sgl_zcopy));
    compare.field(FIELD(ep_get_sgl_zcopy));
    compare.field(FIELD(ep_outstanding_purge));
    EXPECT_LE(sizeof(uct_iface_internal_ops_t), kMaxCallbacks * sizeof(void *));
}

TEST(AbiHeaders, memory_domain_attributes) {
    using F = MdAttrField;
    Comparison<MdQuery::Filled, F> compare{layout().md_attr};
    compare.field(FIELD(field_mask));
    compare.field(CAPABILITY(max_alloc));
    compare.field(CAPABILITY(max_reg));
    compare.field(CAPABILITY(flags));
    compare.field(CAPABILITY(reg_mem_types));
    compare.field(FIELD(reg_nonblock_mem_types));
    compare.field(FIELD(cache_mem_types));
    compare.field(FIELD(gva_mem_types));
    compare.field(CAPABILITY(detect_mem_types));
    compare.field(CAPABILITY(alloc_mem_types));
    compare.field(CAPABILITY(access_mem_types));
    compare.field(FIELD(dmabuf_mem_types));
    compare.field(FIELD(reg_cost));
    compare.field(FIELD(component_name));
    compare.field(FIELD(rkey_packed_size));
    compare.field(FIELD(local_cpus));
    compare.field(FIELD(exported_mkey_packed_size));
    compare.field(FIELD(global_id));
    compare.field(FIELD(reg_alignment));
    compare.field(FIELD(required_mem_flags));
}

TEST(AbiHeaders, memory_attributes) {
    using F = MemAttrField;
    Comparison<MemQuery::Filled, F> compare{layout().mem_attr};
    compare.field(FIELD(mem_type));
    compare.field(FIELD(sys_dev));
    compare.field(FIELD(base_address));
    compare.field(FIELD(alloc_length));
    compare.field(FIELD(dmabuf_fd));
    compare.field(FIELD(dmabuf_offset));
    compare.field(FIELD(mem_flags));
}

TEST(AbiHeaders, performance_attributes) {
    using F = PerfAttrField;
    Comparison<uct_perf_attr_t, F> compare{layout().perf_attr};
    compare.field(FIELD(operation));
    compare.field(FIELD(local_memory_type));
    compare.field(FIELD(remote_memory_type));
    compare.field(FIELD(local_sys_device));
    compare.field(FIELD(remote_sys_device));
    compare.field(FIELD(send_pre_overhead));
    compare.field(FIELD(send_post_overhead));
    compare.field(FIELD(recv_overhead));
    compare.field(FIELD(bandwidth));
    compare.field(FIELD(path_bandwidth));
    compare.field(FIELD(latency));
    compare.field(FIELD(max_inflight_eps));
    compare.field(FIELD(flags));
}

TEST(AbiHeaders, reachability_parameters) {
    using F = ReachableField;
    Comparison<uct_iface_is_reachable_params_t, F> compare{layout().reachable};
    compare.field(FIELD(device_addr));
    compare.field(FIELD(iface_addr));
    compare.field(FIELD(info_string));
    compare.field(FIELD(info_string_length));
    compare.field(FIELD(scope));
    compare.field(FIELD(device_addr_length));
    compare.field(FIELD(iface_addr_length));
}

/** The bits of a field mask, by the names of the fields. */
template <typename Field>
void compare_mask(const StructLayout<Field> &described, const std::string &prefix,
                  const std::map<std::string, Field> &fields) {
    EXPECT_EQ(fields.size(), described.kFieldCount);
    for (const auto &[name, field] : fields) {
        EXPECT_EQ(described.mask_bit(field), constant(prefix + name)) << prefix << name;
    }
}

TEST(AbiHeaders, bits_of_memory_attributes) {
    using F = MemAttrField;
    const char *const v2 = "UCT_MD_MEM_ATTR_V2_FIELD_";
    const bool has_v2 = constant(std::string{v2} + "MEM_TYPE") != 0;
    compare_mask<F>(layout().mem_attr, has_v2 ? v2 : "UCT_MD_MEM_ATTR_FIELD_",
                    {{"MEM_TYPE", F::mem_type},
                     {"SYS_DEV", F::sys_dev},
                     {"BASE_ADDRESS", F::base_address},
                     {"ALLOC_LENGTH", F::alloc_length},
                     {"DMABUF_FD", F::dmabuf_fd},
                     {"DMABUF_OFFSET", F::dmabuf_offset},
                     {"MEM_FLAGS", F::mem_flags}});
}

TEST(AbiHeaders, bits_of_performance_attributes) {
    using F = PerfAttrField;
    compare_mask<F>(layout().perf_attr, "UCT_PERF_ATTR_FIELD_",
                    {{"OPERATION", F::operation},
                     {"LOCAL_MEMORY_TYPE", F::local_memory_type},
                     {"REMOTE_MEMORY_TYPE", F::remote_memory_type},
                     {"LOCAL_SYS_DEVICE", F::local_sys_device},
                     {"REMOTE_SYS_DEVICE", F::remote_sys_device},
                     {"SEND_PRE_OVERHEAD", F::send_pre_overhead},
                     {"SEND_POST_OVERHEAD", F::send_post_overhead},
                     {"RECV_OVERHEAD", F::recv_overhead},
                     {"BANDWIDTH", F::bandwidth},
                     {"PATH_BANDWIDTH", F::path_bandwidth},
                     {"LATENCY", F::latency},
                     {"MAX_INFLIGHT_EPS", F::max_inflight_eps},
                     {"FLAGS", F::flags}});
}

TEST(AbiHeaders, bits_of_reachability_parameters) {
    using F = ReachableField;
    compare_mask<F>(layout().reachable, "UCT_IFACE_IS_REACHABLE_FIELD_",
                    {{"DEVICE_ADDR", F::device_addr},
                     {"IFACE_ADDR", F::iface_addr},
                     {"INFO_STRING", F::info_string},
                     {"INFO_STRING_LENGTH", F::info_string_length},
                     {"SCOPE", F::scope},
                     {"DEVICE_ADDR_LENGTH", F::device_addr_length},
                     {"IFACE_ADDR_LENGTH", F::iface_addr_length}});
}

TEST(AbiHeaders, memory_domain_flags) {
    uint64_t flags = 0;
    for (const auto &[name, value] : constants()) {
        if (name.rfind("UCT_MD_FLAG_", 0) == 0) {
            flags |= value;
        }
    }
    EXPECT_EQ(layout().md_flags, flags);
}

TEST(AbiHeaders, signatures) {
    const Signatures &described = layout().signatures;
    using MemReg = Parameters<decltype(uct_md_ops_t::mem_reg)>;
    EXPECT_EQ(described.mem_reg_takes_params, std::is_pointer_v<MemReg::At<3>>);
    EXPECT_EQ(MemReg::kCount, 5u);
    using MemAlloc = Parameters<decltype(uct_md_ops_t::mem_alloc)>;
    EXPECT_EQ(described.mem_alloc_takes_sys_dev ? 8u : 7u, MemAlloc::kCount);
    using MkeyPack = Parameters<decltype(uct_md_ops_t::mkey_pack)>;
    EXPECT_EQ(described.mkey_pack_takes_address ? 6u : 4u, MkeyPack::kCount);
    using RkeyUnpack = Parameters<decltype(uct_component_t::rkey_unpack)>;
    EXPECT_EQ(described.rkey_unpack_takes_params ? 5u : 4u, RkeyUnpack::kCount);
}

TEST(AbiHeaders, what_never_changes) {
    EXPECT_EQ(kBaseIfaceSize, sizeof(uct_base_iface_t));
    EXPECT_EQ(kBaseIfaceInternalOps, offset_of<uct_base_iface_t>(MEMBER(internal_ops)));
    EXPECT_EQ(kBaseIfaceAm, offset_of<uct_base_iface_t>(MEMBER(am)));
    EXPECT_EQ(kAmHandlerSize, sizeof(uct_am_handler_t));
    EXPECT_EQ(size_t{0}, offset_of<uct_am_handler_t>(MEMBER(cb)));
    EXPECT_EQ(kAmHandlerArgument, offset_of<uct_am_handler_t>(MEMBER(arg)));
    EXPECT_EQ(kIfaceConfigSize, sizeof(uct_iface_config_t));
    EXPECT_EQ(kDeregFlags, offset_of<uct_md_mem_dereg_params_t>(MEMBER(flags)));
    EXPECT_EQ(kDeregMemh, offset_of<uct_md_mem_dereg_params_t>(MEMBER(memh)));
    EXPECT_EQ(kDeregCompletion, offset_of<uct_md_mem_dereg_params_t>(MEMBER(comp)));
    EXPECT_EQ(kDeregFieldMemh, constant("UCT_MD_MEM_DEREG_FIELD_MEMH"));
    EXPECT_EQ(kDeregFieldFlags, constant("UCT_MD_MEM_DEREG_FIELD_FLAGS"));
    EXPECT_EQ(kDeregFieldCompletion, constant("UCT_MD_MEM_DEREG_FIELD_COMPLETION"));
    EXPECT_EQ(kDeregFlagInvalidate, constant("UCT_MD_MEM_DEREG_FLAG_INVALIDATE"));
}

TEST(AbiHeaders, control_device_of_an_interface) {
    EXPECT_EQ(layout().iface_ctl_device, offset_of<uct_iface_attr_t>(MEMBER(ctl_device)));
}

}  // namespace
}  // namespace gpushm::abi
