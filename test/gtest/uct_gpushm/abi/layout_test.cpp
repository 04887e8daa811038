// SPDX-License-Identifier: BSD-3-Clause
// Compares the layout of the running UCX with UCX itself: reads UCX's components, tables and
// structs with the offsets of the layout, and compares them with the results of the public API and
// with exported symbols. The example is UCX's transport "self" (src/uct/sm/self/self.c).
#include "test/gtest/uct_gpushm/abi/ucx.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace abi_test {
namespace {

using namespace gpushm::abi;

/** A table of functions in UCX, read with the offsets of the layout. */
template <typename Op>
const void *slot(const void *table, const StructLayout<Op> &layout, Op op) {
    return load<const void *>(table, layout[op]);
}

class AbiLayout : public testing::Test {
protected:
    static void SetUpTestSuite() {
        const Ucx &ucx = Ucx::get();
        std::printf("UCX %u.%u.%u at %s\n", ucx.version.major, ucx.version.minor,
                    ucx.version.release, ucx.path().c_str());
    }

    void SetUp() override { ASSERT_NE(ucx_.layout, nullptr) << "no layout for this UCX"; }

    /** The slot holds this exported function. Nothing is expected of a slot that the layout lacks,
     * or where this UCX has a function that it does not export. */
    template <typename Op>
    void expect_function(const void *table, const StructLayout<Op> &layout, Op op,
                         const char *function) {
        if (layout.has(op) && ucx_.symbol(function) != nullptr) {
            EXPECT_EQ(slot(table, layout, op), ucx_.symbol(function)) << function;
        }
    }

    const Ucx &ucx_ = Ucx::get();
    const Layout &layout() const { return *ucx_.layout; }
    /** The answer of host domains. UCX 1.16 leaves it unset. */
    size_t alignment() const { return layout().minor >= 17 ? 1 : 0; }
};

bool is_linked(const ucs_list_link_t *link) {
    return link->next->prev == link && link->prev->next == link;
}

const ucs_list_link_t *link_at(const void *object, size_t offset) {
    return reinterpret_cast<const ucs_list_link_t *>(static_cast<const char *>(object) + offset);
}

void expect_config_entry(const void *entry, const StructLayout<ConfigEntryField> &layout) {
    using F = ConfigEntryField;
    EXPECT_TRUE(is_loaded(load<const char *>(entry, layout[F::name])));
    EXPECT_TRUE(is_linked(link_at(entry, layout[F::list])));
    const void *table = load<const void *>(entry, layout[F::table]);
    EXPECT_TRUE(table == nullptr || is_loaded(table));
    EXPECT_LT(load<size_t>(entry, layout[F::size]), 8192u);
    if (layout.has(F::flags)) {
        EXPECT_LE(load<uint8_t>(entry, layout[F::flags]), 1u);  // UCS_CONFIG_TABLE_FLAG_LOADED
    }
}

TEST_F(AbiLayout, components_are_where_uct_query_components_lists_them) {
    using F = ComponentField;
    const StructLayout<F> &fields = layout().component;
    const std::vector<uct_component_h> listed = ucx_.components();
    const auto *head = static_cast<const ucs_list_link_t *>(ucx_.symbol("uct_components_list"));
    ASSERT_NE(head, nullptr);
    size_t count = 0;
    for (const ucs_list_link_t *link = head->next; link != head; link = link->next) {
        const void *component = reinterpret_cast<const char *>(link) - fields[F::list];
        ASSERT_LT(count, listed.size());
        EXPECT_EQ(component, listed[count++]);
    }
    EXPECT_EQ(count, listed.size());
}

TEST_F(AbiLayout, component_fields_hold_functions_names_and_lists) {
    using F = ComponentField;
    const StructLayout<F> &fields = layout().component;
    std::set<std::string> names;
    for (uct_component_h component : ucx_.components()) {
        uct_component_attr_t attributes{};
        attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_FLAGS;
        ASSERT_EQ(ucx_.uct.component_query(component, &attributes), UCS_OK);
        SCOPED_TRACE(attributes.name);
        names.insert(attributes.name);
        EXPECT_STREQ(reinterpret_cast<const char *>(component) + fields[F::name], attributes.name);
        EXPECT_EQ(load<uint64_t>(component, fields[F::flags]), attributes.flags);
        for (F function : {F::query_md_resources, F::md_open, F::cm_open, F::rkey_unpack,
                           F::rkey_ptr, F::rkey_release, F::md_vfs_init}) {
            EXPECT_TRUE(is_code(slot(component, fields, function)))
                << "function " << static_cast<int>(function);
        }
        const char *bytes = reinterpret_cast<const char *>(component);
        expect_config_entry(bytes + fields[F::md_config], layout().config_entry);
        expect_config_entry(bytes + fields[F::cm_config], layout().config_entry);
        EXPECT_TRUE(is_linked(link_at(component, fields[F::tl_list])));
    }
    EXPECT_TRUE(names.count("self") && names.count("tcp") && names.count("posix"));
}

TEST_F(AbiLayout, self_component_holds_the_exported_functions) {
    using F = ComponentField;
    const uct_component_h self = ucx_.component("self");
    ASSERT_NE(self, nullptr);
    const StructLayout<F> &fields = layout().component;
    expect_function(self, fields, F::query_md_resources, "uct_md_query_single_md_resource");
    expect_function(self, fields, F::cm_open, "ucs_empty_function_return_unsupported");
    expect_function(self, fields, F::rkey_release, "ucs_empty_function_return_success");
    expect_function(self, fields, F::rkey_compare, "uct_base_rkey_compare");
    expect_function(self, fields, F::md_vfs_init, "ucs_empty_function");
    const char *md_config = reinterpret_cast<const char *>(self) + fields[F::md_config];
    EXPECT_STREQ(load<const char *>(md_config, layout().config_entry[ConfigEntryField::prefix]),
                 "SELF_");
}

TEST_F(AbiLayout, transports_are_listed_in_their_component) {
    using F = TlField;
    const StructLayout<F> &fields = layout().tl;
    for (const char *name : {"self", "posix", "sysv", "tcp"}) {
        SCOPED_TRACE(name);
        const uct_component_h component = ucx_.component(name);
        ASSERT_NE(component, nullptr);
        const ucs_list_link_t *head =
            link_at(component, layout().component[ComponentField::tl_list]);
        ASSERT_NE(head->next, head);
        EXPECT_EQ(head->next, head->prev) << "one transport";
        const char *tl = reinterpret_cast<const char *>(head->next) - fields[F::list];
        EXPECT_STREQ(tl + fields[F::name], name);
        EXPECT_TRUE(is_code(slot(tl, fields, F::query_devices)));
        EXPECT_TRUE(is_code(slot(tl, fields, F::iface_open)));
        const char *config = tl + fields[F::config];
        expect_config_entry(config, layout().config_entry);
        const std::string prefix =
            load<const char *>(config, layout().config_entry[ConfigEntryField::prefix]);
        EXPECT_EQ(prefix.back(), '_');
        EXPECT_NE(load<const void *>(config, layout().config_entry[ConfigEntryField::table]),
                  nullptr);
    }
}

TEST_F(AbiLayout, option_table_of_every_interface_reads_as_described) {
    using F = ConfigOptionField;
    const StructLayout<F> &fields = layout().config_option;
    const auto *entry = static_cast<const char *>(ucx_.symbol("uct_iface_config_table"));
    ASSERT_NE(entry, nullptr);
    std::set<std::string> names;
    for (; load<const char *>(entry, fields[F::name]) != nullptr; entry += fields.size()) {
        ASSERT_TRUE(is_loaded(entry) && is_loaded(load<const char *>(entry, fields[F::name])));
        const std::string name = load<const char *>(entry, fields[F::name]);
        SCOPED_TRACE(name);
        names.insert(name);
        EXPECT_TRUE(is_code(slot(entry, fields, F::parser_read)));
        EXPECT_TRUE(is_code(slot(entry, fields, F::parser_release)));
        if (name != "MAX_NUM_EPS") {
            continue;
        }
        EXPECT_STREQ(load<const char *>(entry, fields[F::dfl_value]), "inf");
        EXPECT_EQ(load<size_t>(entry, fields[F::offset]), kIfaceConfigSize - sizeof(size_t));
        expect_function(entry, fields, F::parser_read, "ucs_config_sscanf_ulunits");
        expect_function(entry, fields, F::parser_write, "ucs_config_sprintf_ulunits");
        expect_function(entry, fields, F::parser_clone, "ucs_config_clone_ulong");
        expect_function(entry, fields, F::parser_release, "ucs_config_release_nop");
        expect_function(entry, fields, F::parser_help, "ucs_config_help_generic");
        expect_function(entry, fields, F::parser_doc, "ucs_config_doc_nop");
        const char *argument = load<const char *>(entry, fields[F::parser_arg]);
        ASSERT_TRUE(is_loaded(argument));
        EXPECT_EQ(std::strncmp(argument, "unsigned long", 13), 0);
    }
    EXPECT_TRUE(names.count("ALLOC") && names.count("FAILURE") && names.count("MAX_NUM_EPS"));
}

TEST_F(AbiLayout, self_domain_holds_the_exported_operations) {
    const OpenMd md{ucx_.component("self"), "self"};
    ASSERT_NE(md.get(), nullptr);
    const void *ops = load<const void *>(md.get(), 0);
    EXPECT_EQ(load<const void *>(md.get(), sizeof(void *)), ucx_.component("self"));
    const StructLayout<MdOp> &fields = layout().md_ops;
    EXPECT_TRUE(is_code(slot(ops, fields, MdOp::query)));
    EXPECT_TRUE(is_code(slot(ops, fields, MdOp::mem_reg)));
    EXPECT_TRUE(is_code(slot(ops, fields, MdOp::mem_dereg)));
    expect_function(ops, fields, MdOp::close, "ucs_empty_function");
    expect_function(ops, fields, MdOp::mem_reg, "uct_md_dummy_mem_reg");
    expect_function(ops, fields, MdOp::mem_dereg, "uct_md_dummy_mem_dereg");
    expect_function(ops, fields, MdOp::mkey_pack, "ucs_empty_function_return_success");
    const char *unsupported = "ucs_empty_function_return_unsupported";
    expect_function(ops, fields, MdOp::mem_attach, unsupported);
    expect_function(ops, fields, MdOp::detect_memory_type, unsupported);
    expect_function(ops, fields, MdOp::mem_elem_pack, unsupported);
    expect_function(ops, fields, MdOp::mem_elem_release, "ucs_empty_function");
    if (layout().minor >= 19) {  // before, self leaves these null
        for (MdOp op : {MdOp::mem_alloc, MdOp::mem_free, MdOp::mem_advise, MdOp::mem_query}) {
            expect_function(ops, fields, op, unsupported);
        }
    }
}

TEST_F(AbiLayout, domain_attributes_agree_with_the_public_query) {
    using F = MdAttrField;
    const StructLayout<F> &fields = layout().md_attr;
    for (const char *name : {"self", "posix", "sysv", "tcp"}) {
        SCOPED_TRACE(name);
        const OpenMd md{ucx_.component(name), name};
        ASSERT_NE(md.get(), nullptr);
        uct_md_attr_t expected{};
        ASSERT_EQ(ucx_.uct.md_query(md.get(), &expected), UCS_OK);

        Canvas canvas{fields.size()};
        if (fields.has(F::field_mask)) {
            // Prepared like uct_md_attr_v2_init of UCX.
            std::memset(canvas.data(), 0, fields.size());
            canvas.set(fields[F::field_mask], UINT64_MAX);
        }
        const void *ops = load<const void *>(md.get(), 0);
        const auto query = reinterpret_cast<ucs_status_t (*)(uct_md_h, void *)>(
            const_cast<void *>(slot(ops, layout().md_ops, MdOp::query)));
        ASSERT_EQ(query(md.get(), canvas.data()), UCS_OK);
        EXPECT_TRUE(canvas.is_tail_untouched());
        EXPECT_EQ(canvas.get<uint64_t>(fields[F::max_alloc]), expected.cap.max_alloc);
        EXPECT_EQ(canvas.get<size_t>(fields[F::max_reg]), expected.cap.max_reg);
        EXPECT_EQ(canvas.get<uint64_t>(fields[F::flags]) & 0x7ff, expected.cap.flags & 0x7ff);
        EXPECT_EQ(canvas.get<uint64_t>(fields[F::reg_mem_types]), expected.cap.reg_mem_types);
        EXPECT_EQ(canvas.get<uint64_t>(fields[F::detect_mem_types]), expected.cap.detect_mem_types);
        EXPECT_EQ(canvas.get<uint64_t>(fields[F::alloc_mem_types]), expected.cap.alloc_mem_types);
        EXPECT_EQ(canvas.get<uint64_t>(fields[F::access_mem_types]), expected.cap.access_mem_types);
        EXPECT_EQ(canvas.get<size_t>(fields[F::rkey_packed_size]), expected.rkey_packed_size);
        EXPECT_EQ(canvas.get<double>(fields[F::reg_cost]), expected.reg_cost.c);
        const auto cpus = canvas.get<ucs_cpu_set_t>(fields[F::local_cpus]);
        EXPECT_EQ(std::memcmp(&cpus, &expected.local_cpus, sizeof(cpus)), 0);
        if (fields.has(F::reg_alignment)) {
            EXPECT_EQ(canvas.get<size_t>(fields[F::reg_alignment]), alignment());
        }
    }
}

TEST_F(AbiLayout, public_query_v2_fills_the_described_struct) {
    using F = MdAttrField;
    const StructLayout<F> &fields = layout().md_attr;
    const auto query =
        reinterpret_cast<ucs_status_t (*)(uct_md_h, void *)>(ucx_.symbol("uct_md_query_v2"));
    if (query == nullptr || !fields.has(F::reg_alignment)) {
        GTEST_SKIP() << "this UCX has no uct_md_query_v2";
    }
    const OpenMd md{ucx_.component("posix"), "posix"};
    Canvas canvas{fields.size()};
    canvas.set(fields[F::field_mask], UINT64_MAX);
    ASSERT_EQ(query(md.get(), canvas.data()), UCS_OK);
    EXPECT_TRUE(canvas.is_tail_untouched());
    EXPECT_FALSE(canvas.is_untouched(fields.size() - sizeof(size_t), 1)) << "the struct is smaller";
    const char *bytes = static_cast<const char *>(canvas.data());
    EXPECT_STREQ(bytes + fields[F::component_name], "posix");
    EXPECT_EQ(canvas.get<size_t>(fields[F::reg_alignment]), alignment());
    // Attributes that posix does not have are zero, and not the pattern.
    for (F field : {F::reg_nonblock_mem_types, F::gva_mem_types, F::dmabuf_mem_types,
                    F::exported_mkey_packed_size}) {
        if (fields.has(field)) {
            EXPECT_EQ(canvas.get<uint64_t>(fields[field]), 0u) << static_cast<int>(field);
        }
    }
    if (fields.has(F::required_mem_flags)) {
        EXPECT_EQ(canvas.get<uint8_t>(fields[F::required_mem_flags]), 0u);
        EXPECT_TRUE(canvas.is_untouched(fields[F::required_mem_flags] + 1, 7)) << "one byte";
    }
}

TEST_F(AbiLayout, self_interface_holds_the_exported_operations) {
    const OpenMd md{ucx_.component("self"), "self"};
    const OpenIface iface{md.get(), "self"};
    ASSERT_NE(iface.get(), nullptr);
    const void *ops = load<const void *>(iface.get(), kBaseIfaceInternalOps);
    using Op = InternalOp;
    const StructLayout<Op> &fields = layout().internal_ops;
    const char *unsupported = "ucs_empty_function_return_unsupported";
    expect_function(ops, fields, Op::iface_estimate_perf, "uct_base_iface_estimate_perf");
    expect_function(ops, fields, Op::iface_vfs_refresh, "ucs_empty_function");
    expect_function(ops, fields, Op::ep_query, unsupported);
    expect_function(ops, fields, Op::ep_invalidate, unsupported);
    expect_function(ops, fields, Op::iface_query_v2, "uct_iface_base_query_v2");
    expect_function(ops, fields, Op::iface_mem_element_pack, unsupported);
    expect_function(ops, fields, Op::ep_get_device_ep, unsupported);
    expect_function(ops, fields, Op::ep_outstanding_purge, unsupported);
    if (layout().minor >= 16) {  // before, self leaves these null
        expect_function(ops, fields, Op::ep_connect_to_ep_v2, unsupported);
        EXPECT_TRUE(is_code(slot(ops, fields, Op::iface_is_reachable_v2)));
    }
    if (layout().minor >= 18) {
        expect_function(ops, fields, Op::ep_is_connected, "uct_base_ep_is_connected");
    }
}

ucs_status_t handle_message(void *, void *, size_t, unsigned) {
    return UCS_OK;
}

void trace_message(void *, uct_am_trace_type_t, uint8_t, const void *, size_t, char *, size_t) {}

TEST_F(AbiLayout, message_handlers_lie_in_the_interface) {
    const OpenMd md{ucx_.component("self"), "self"};
    const OpenIface iface{md.get(), "self"};
    ASSERT_NE(iface.get(), nullptr);
    int argument = 0;
    for (uint8_t id : {0, 1, 31}) {
        ASSERT_EQ(ucx_.uct.iface_set_am_handler(iface.get(), id, handle_message, &argument, 0),
                  UCS_OK);
        const size_t handler = kBaseIfaceAm + id * kAmHandlerSize;
        EXPECT_EQ(load<uct_am_callback_t>(iface.get(), handler), handle_message);
        EXPECT_EQ(load<int *>(iface.get(), handler + kAmHandlerArgument), &argument);
    }
    const auto set_tracer = reinterpret_cast<decltype(&uct_iface_set_am_tracer)>(
        ucx_.symbol("uct_iface_set_am_tracer"));
    ASSERT_NE(set_tracer, nullptr);
    ASSERT_EQ(set_tracer(iface.get(), trace_message, &argument), UCS_OK);
    EXPECT_EQ(load<uct_am_tracer_t>(iface.get(), kBaseIfaceAmTracer), trace_message);
    EXPECT_EQ(load<int *>(iface.get(), kBaseIfaceAmTracer + sizeof(uct_am_tracer_t)), &argument);
    EXPECT_EQ(load<uct_md_h>(iface.get(), kBaseIfaceInternalOps + sizeof(void *)), md.get());
}

TEST_F(AbiLayout, performance_fields_are_written_where_described) {
    using F = PerfAttrField;
    const StructLayout<F> &fields = layout().perf_attr;
    const OpenMd md{ucx_.component("posix"), "posix"};
    const OpenIface iface{md.get(), "posix"};
    ASSERT_NE(iface.get(), nullptr);
    uct_iface_attr_t attributes{};
    ASSERT_EQ(ucx_.uct.iface_query(iface.get(), &attributes), UCS_OK);
    const auto estimate = reinterpret_cast<ucs_status_t (*)(uct_iface_h, void *)>(
        ucx_.symbol("uct_base_iface_estimate_perf"));
    ASSERT_NE(estimate, nullptr);

    struct Expected {
        F field;
        std::vector<unsigned char> bytes;
    };
    const auto bytes_of = [](const auto &value) {
        const auto *begin = reinterpret_cast<const unsigned char *>(&value);
        return std::vector<unsigned char>(begin, begin + sizeof(value));
    };
    const Expected expected[] = {
        {F::send_pre_overhead, bytes_of(attributes.overhead)},
        {F::send_post_overhead, bytes_of(double{0})},
        {F::recv_overhead, bytes_of(attributes.overhead)},
        {F::bandwidth, bytes_of(attributes.bandwidth)},
        {F::path_bandwidth, bytes_of(attributes.bandwidth)},
        {F::latency, bytes_of(attributes.latency)},
        {F::max_inflight_eps, bytes_of(SIZE_MAX)},
        {F::flags, bytes_of(uint64_t{0})},
    };
    for (const Expected &one : expected) {
        if (!fields.has(one.field)) {
            continue;
        }
        SCOPED_TRACE(static_cast<int>(one.field));
        Canvas canvas{fields.size()};
        canvas.set(0, fields.mask_bit(one.field));
        ASSERT_EQ(estimate(iface.get(), canvas.data()), UCS_OK);
        const size_t offset = fields[one.field];
        const auto *written = static_cast<const unsigned char *>(canvas.data()) + offset;
        EXPECT_EQ(std::vector<unsigned char>(written, written + one.bytes.size()), one.bytes);
        EXPECT_TRUE(canvas.is_untouched(sizeof(uint64_t), offset - sizeof(uint64_t)));
        const size_t behind = offset + one.bytes.size();
        EXPECT_TRUE(canvas.is_untouched(behind, fields.size() - behind));
        EXPECT_TRUE(canvas.is_tail_untouched());
    }
}

TEST_F(AbiLayout, reachability_parameters_are_read_where_described) {
    using F = ReachableField;
    const StructLayout<F> &fields = layout().reachable;
    if (!layout().internal_ops.has(InternalOp::iface_is_reachable_v2)) {
        GTEST_SKIP() << "this UCX asks without parameters";
    }
    const OpenMd md{ucx_.component("self"), "self"};
    const OpenIface iface{md.get(), "self"};
    ASSERT_NE(iface.get(), nullptr);
    uct_iface_attr_t attributes{};
    ASSERT_EQ(ucx_.uct.iface_query(iface.get(), &attributes), UCS_OK);
    std::vector<unsigned char> device(attributes.device_addr_len + 8);
    std::vector<unsigned char> address(attributes.iface_addr_len + 8);
    ASSERT_EQ(ucx_.uct.iface_get_device_address(
                  iface.get(), reinterpret_cast<uct_device_addr_t *>(device.data())),
              UCS_OK);
    ASSERT_EQ(ucx_.uct.iface_get_address(iface.get(),
                                         reinterpret_cast<uct_iface_addr_t *>(address.data())),
              UCS_OK);

    char reason[64];
    std::vector<unsigned char> params(fields.size());
    const auto give = [&](F field, auto value) {
        if (fields.has(field)) {
            store(params.data(), 0, load<uint64_t>(params.data(), 0) | fields.mask_bit(field));
            store(params.data(), fields[field], value);
        }
    };
    give(F::device_addr, static_cast<const void *>(device.data()));
    give(F::iface_addr, static_cast<const void *>(address.data()));
    give(F::info_string, static_cast<char *>(reason));
    give(F::info_string_length, sizeof(reason));
    give(F::device_addr_length, size_t{attributes.device_addr_len});
    give(F::iface_addr_length, size_t{attributes.iface_addr_len});
    std::memset(reason, 'x', sizeof(reason));
    EXPECT_EQ(ucx_.uct.iface_is_reachable_v2(iface.get(), params.data()), 1);
    EXPECT_EQ(reason[0], '\0') << "UCX clears the reason";
    address[0] ^= 1;
    EXPECT_EQ(ucx_.uct.iface_is_reachable_v2(iface.get(), params.data()), 0);
}

TEST_F(AbiLayout, unknown_versions_have_no_layout) {
    EXPECT_EQ(find_layout(1, 12), nullptr);
    EXPECT_EQ(find_layout(1, 24), nullptr);
    EXPECT_EQ(find_layout(2, 18), nullptr);
    ASSERT_NE(find_layout(1, 18), nullptr);
    EXPECT_EQ(find_layout(1, 18)->minor, 18u);
}

}  // namespace
}  // namespace abi_test
