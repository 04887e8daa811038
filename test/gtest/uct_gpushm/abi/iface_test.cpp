// SPDX-License-Identifier: BSD-3-Clause
// The adapters of the interface and its options, driven through the public API of the running UCX.
#include "test/gtest/uct_gpushm/abi/component.hpp"
#include "test/gtest/uct_gpushm/abi/ucx.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace abi_test {
namespace {

using namespace gpushm::abi;

class AbiIface : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(register_test_component());
        md_ = std::make_unique<OpenMd>(Ucx::get().component("abitest"), "keyed");
        ASSERT_NE(md_->get(), nullptr);
        open();
        ASSERT_NE(iface(), nullptr);
        told() = Told{};
    }

    void open() { iface_ = std::make_unique<OpenIface>(md_->get(), "abitest"); }
    uct_iface_h iface() const { return iface_->get(); }

    const Ucx &ucx_ = Ucx::get();
    const Uct &uct_ = Ucx::get().uct;
    std::unique_ptr<OpenMd> md_;
    std::unique_ptr<OpenIface> iface_;
};

TEST_F(AbiIface, device_is_listed_as_shared_memory) {
    uct_tl_resource_desc_t *resources = nullptr;
    unsigned count = 0;
    ASSERT_EQ(uct_.md_query_tl_resources(md_->get(), &resources, &count), UCS_OK);
    ASSERT_EQ(count, 1u);
    EXPECT_STREQ(resources[0].tl_name, "abitest");
    EXPECT_STREQ(resources[0].dev_name, "abidevice");
    EXPECT_EQ(resources[0].dev_type, UCT_DEVICE_TYPE_SHM);
    EXPECT_EQ(resources[0].sys_device, UCS_SYS_DEVICE_ID_UNKNOWN);
    uct_.release_tl_resource_list(resources);
}

TEST_F(AbiIface, domain_without_a_device_lists_none) {
    const OpenMd copy{ucx_.component("abitest"), "copy"};
    uct_tl_resource_desc_t *resources = nullptr;
    unsigned count = 7;
    ASSERT_EQ(uct_.md_query_tl_resources(copy.get(), &resources, &count), UCS_OK);
    EXPECT_EQ(count, 0u);
    uct_.release_tl_resource_list(resources);
}

TEST_F(AbiIface, options_have_their_defaults) {
    EXPECT_EQ(last_config.flag, 1);
    EXPECT_EQ(last_config.size, 32768u);
    EXPECT_EQ(last_config.count, 12u);
    EXPECT_EQ(last_config.ternary, 2);
    EXPECT_DOUBLE_EQ(last_config.time, 200e-6);
    EXPECT_EQ(load<size_t>(&last_config, kIfaceConfigSize - sizeof(size_t)), SIZE_MAX)
        << "MAX_NUM_EPS, an option of every interface";
}

TEST_F(AbiIface, options_are_read_from_the_environment) {
    setenv("UCX_ABITEST_SIZE", "3m", 1);
    setenv("UCX_ABITEST_COUNT", "77", 1);
    setenv("UCX_ABITEST_FLAG", "no", 1);
    setenv("UCX_ABITEST_TERNARY", "auto", 1);
    setenv("UCX_ABITEST_TIME", "1.5ms", 1);
    open();
    EXPECT_EQ(last_config.size, size_t{3} << 20);
    EXPECT_EQ(last_config.count, 77u);
    EXPECT_EQ(last_config.flag, 0);
    EXPECT_EQ(last_config.ternary, 3);
    EXPECT_DOUBLE_EQ(last_config.time, 1.5e-3);
    for (const char *name : {"SIZE", "COUNT", "FLAG", "TERNARY", "TIME"}) {
        unsetenv((std::string("UCX_ABITEST_") + name).c_str());
    }
}

TEST_F(AbiIface, ucx_rejects_and_prints_option_values) {
    uct_iface_config_t *config = nullptr;
    ASSERT_EQ(uct_.md_iface_config_read(md_->get(), "abitest", nullptr, nullptr, &config), UCS_OK);
    // From 1.17 on, uct_config_modify wants the prefix, too.
    const std::string prefix = ucx_.layout->minor >= 17 ? "ABITEST_" : "";
    for (const char *name : {"FLAG", "SIZE", "COUNT", "TERNARY"}) {
        EXPECT_EQ(uct_.config_modify(config, (prefix + name).c_str(), "nonsense"),
                  UCS_ERR_INVALID_PARAM)
            << name;
    }
    EXPECT_EQ(uct_.config_modify(config, (prefix + "UNKNOWN").c_str(), "1"), UCS_ERR_NO_ELEM);
    char value[64] = "";
    ASSERT_EQ(uct_.config_modify(config, (prefix + "SIZE").c_str(), "5m"), UCS_OK);
    ASSERT_EQ(uct_.config_get(config, "SIZE", value, sizeof(value)), UCS_OK);
    EXPECT_STRCASEEQ(value, "5m");
    uct_.config_release(config);
}

TEST_F(AbiIface, attributes_start_from_ucx_defaults) {
    uct_iface_attr_t attributes;
    std::memset(&attributes, 0xa5, sizeof(attributes));
    ASSERT_EQ(uct_.iface_query(iface(), &attributes), UCS_OK);
    EXPECT_EQ(attributes.dev_num_paths, 1u);
    EXPECT_EQ(attributes.max_num_eps, SIZE_MAX);
    EXPECT_EQ(attributes.cap.am.max_short, 0u) << "cleared";
    if (ucx_.layout->iface_ctl_device != kAbsent) {
        EXPECT_EQ(load<uint8_t>(&attributes, ucx_.layout->iface_ctl_device), 0xff);
    }
}

struct Answer {
    PerfAttrField field;
    std::vector<double> values;
};

TEST_F(AbiIface, estimate_is_corrected_field_by_field) {
    using F = PerfAttrField;
    const StructLayout<F> &fields = ucx_.layout->perf_attr;
    const Answer answers[] = {
        {F::send_pre_overhead, {1e-6}}, {F::send_post_overhead, {2e-6}}, {F::recv_overhead, {3e-6}},
        {F::bandwidth, {4e9, 5e9}},     {F::path_bandwidth, {4e9, 5e9}}, {F::latency, {6e-6, 1e-9}},
    };
    for (const Answer &answer : answers) {
        if (!fields.has(answer.field)) {
            continue;
        }
        SCOPED_TRACE(static_cast<int>(answer.field));
        Canvas canvas{fields.size()};
        canvas.set(0, fields.mask_bit(answer.field));
        ASSERT_EQ(uct_.iface_estimate_perf(iface(), canvas.data()), UCS_OK);
        const size_t offset = fields[answer.field];
        for (size_t i = 0; i < answer.values.size(); ++i) {
            EXPECT_EQ(canvas.get<double>(offset + i * sizeof(double)), answer.values[i]);
        }
        EXPECT_TRUE(canvas.is_untouched(sizeof(uint64_t), offset - sizeof(uint64_t)));
        const size_t behind = offset + answer.values.size() * sizeof(double);
        EXPECT_TRUE(canvas.is_untouched(behind, fields.size() - behind));
        EXPECT_TRUE(canvas.is_tail_untouched());
    }
    EXPECT_EQ(told().estimate.send_pre_overhead, 7e-6) << "UCX's own estimate comes first";
    EXPECT_EQ(told().estimate.bandwidth_dedicated, 8e9);
    EXPECT_EQ(told().estimate.bandwidth_shared, 9e9);
    EXPECT_EQ(told().estimate.latency, 1e-5);
}

TEST_F(AbiIface, estimate_is_told_operation_and_memory_types) {
    using F = PerfAttrField;
    const StructLayout<F> &fields = ucx_.layout->perf_attr;
    Canvas canvas{fields.size()};
    canvas.set(0, fields.mask_bit(F::operation) | fields.mask_bit(F::local_memory_type) |
                      fields.mask_bit(F::remote_memory_type) | fields.mask_bit(F::latency));
    canvas.set(fields[F::operation], 5);
    canvas.set(fields[F::local_memory_type], UCS_MEMORY_TYPE_CUDA);
    canvas.set(fields[F::remote_memory_type], 9);  // unknown in 1.18, a foreign type elsewhere
    ASSERT_EQ(uct_.iface_estimate_perf(iface(), canvas.data()), UCS_OK);
    EXPECT_EQ(told().estimate.operation, Operation::put_zcopy);
    EXPECT_EQ(told().estimate.local_memory_type, UCS_MEMORY_TYPE_CUDA);
    EXPECT_EQ(told().estimate.remote_memory_type, UCS_MEMORY_TYPE_UNKNOWN);
    canvas.set(0, fields.mask_bit(F::latency));
    ASSERT_EQ(uct_.iface_estimate_perf(iface(), canvas.data()), UCS_OK);
    EXPECT_EQ(told().estimate.operation, Operation::other);
    EXPECT_EQ(told().estimate.local_memory_type, UCS_MEMORY_TYPE_UNKNOWN);
    EXPECT_EQ(told().estimate.remote_memory_type, UCS_MEMORY_TYPE_UNKNOWN);
}

TEST_F(AbiIface, reachability_is_asked_with_both_addresses) {
    uint64_t device = 0;
    const uint64_t address = 1;
    ASSERT_EQ(
        uct_.iface_get_device_address(iface(), reinterpret_cast<uct_device_addr_t *>(&device)),
        UCS_OK);
    const auto *device_addr = reinterpret_cast<const uct_device_addr_t *>(&device);
    const auto *iface_addr = reinterpret_cast<const uct_iface_addr_t *>(&address);
    EXPECT_EQ(uct_.iface_is_reachable(iface(), device_addr, iface_addr), 1);
    EXPECT_TRUE(told().had_iface_addr);
    told().answer_unreachable = true;
    EXPECT_EQ(uct_.iface_is_reachable(iface(), device_addr, iface_addr), 0);
}

TEST_F(AbiIface, reachability_with_parameters_tells_lengths_and_a_reason) {
    using F = ReachableField;
    const StructLayout<F> &fields = ucx_.layout->reachable;
    if (!ucx_.layout->internal_ops.has(InternalOp::iface_is_reachable_v2)) {
        GTEST_SKIP() << "this UCX asks without parameters";
    }
    uint64_t device = 0;
    ASSERT_EQ(
        uct_.iface_get_device_address(iface(), reinterpret_cast<uct_device_addr_t *>(&device)),
        UCS_OK);
    const uint64_t address = 1;
    char reason[64] = "";
    Canvas params{fields.size()};
    uint64_t mask = 0;
    const auto give = [&](F field, auto value) {
        mask |= fields.mask_bit(field);
        store(params.data(), fields, field, value);
    };
    give(F::device_addr, &device);
    give(F::iface_addr, &address);
    give(F::info_string, &reason[0]);
    give(F::info_string_length, sizeof(reason));
    give(F::device_addr_length, size_t{8});
    give(F::iface_addr_length, size_t{9});
    params.set(0, mask);
    EXPECT_EQ(uct_.iface_is_reachable_v2(iface(), params.data()), 1);
    EXPECT_TRUE(told().had_iface_addr);
    EXPECT_EQ(told().device_addr_length, fields.has(F::device_addr_length) ? 8u : 0u);
    EXPECT_EQ(told().iface_addr_length, fields.has(F::iface_addr_length) ? 9u : 0u);
    EXPECT_STREQ(reason, "");
    told().answer_unreachable = true;
    EXPECT_EQ(uct_.iface_is_reachable_v2(iface(), params.data()), 0);
    EXPECT_STRNE(reason, "");
    if (ucx_.layout->minor == 15) {
        return;  // never asks about the device alone
    }
    params.set(0, fields.mask_bit(F::device_addr));
    EXPECT_EQ(uct_.iface_is_reachable_v2(iface(), params.data()), 0);
    EXPECT_FALSE(told().had_iface_addr);
    EXPECT_EQ(told().device_addr_length, 0u);
}

struct Received {
    std::string data;
    unsigned flags;
};

ucs_status_t receive(void *argument, void *data, size_t length, unsigned flags) {
    auto *received = static_cast<Received *>(argument);
    received->data.assign(static_cast<const char *>(data), length);
    received->flags = flags;
    return UCS_INPROGRESS;
}

TEST_F(AbiIface, messages_reach_the_handler_of_their_id) {
    Received right{};
    Received wrong{};
    ASSERT_EQ(uct_.iface_set_am_handler(iface(), 4, receive, &wrong, 0), UCS_OK);
    ASSERT_EQ(uct_.iface_set_am_handler(iface(), 5, receive, &right, 0), UCS_OK);
    char message[] = "message";
    EXPECT_EQ(invoke_am(reinterpret_cast<Iface *>(iface()), 5, message, 7, UCT_CB_PARAM_FLAG_DESC),
              UCS_INPROGRESS);
    EXPECT_EQ(right.data, "message");
    EXPECT_EQ(right.flags, unsigned{UCT_CB_PARAM_FLAG_DESC});
    EXPECT_EQ(wrong.data, "");
}

}  // namespace
}  // namespace abi_test
