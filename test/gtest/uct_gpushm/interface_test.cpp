// SPDX-License-Identifier: BSD-3-Clause
// The transport through UCT's public API: the answers of an interface and its endpoints, and what
// they refuse. The plugin is loaded into the UCX that the dynamic linker finds.
#include "test/gtest/uct_gpushm/abi/ucx.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

namespace abi_test {
namespace {

using namespace gpushm::abi;

void load_plugin() {
    static const bool once = [] {
        void *plugin = dlopen(GPUSHM_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
        if (plugin == nullptr) {
            ADD_FAILURE() << dlerror();
            return false;
        }
        reinterpret_cast<void (*)(const void *)>(dlsym(plugin, "gpushm_register"))(
            Ucx::get().code());
        return true;
    }();
    ASSERT_TRUE(once);
}

/** The PCI bus of a device that UCX knows under this number; -1: none. */
int bus_of(ucs_sys_device_t device) {
    const auto ask = reinterpret_cast<decltype(&ucs_topo_get_device_bus_id)>(
        Ucx::get().symbol("ucs_topo_get_device_bus_id"));
    ucs_sys_bus_id_t id{};
    return ask != nullptr && ask(device, &id) == UCS_OK ? id.bus : -1;
}

/** The interface between processes, used within one process. */
class Side {
public:
    Side() : md_(Ucx::get().component("gpushm"), "gpushm"), iface_(md_.get(), "gpushm") {
        uct_iface_attr_t attributes{};
        if (iface_.get() == nullptr || uct_.iface_query(iface_.get(), &attributes) != UCS_OK) {
            ADD_FAILURE() << "no interface";
            return;
        }
        device_.resize(attributes.device_addr_len);
        address_.resize(attributes.iface_addr_len);
        EXPECT_EQ(uct_.iface_get_device_address(iface_.get(), device()), UCS_OK);
        EXPECT_EQ(uct_.iface_get_address(iface_.get(), address()), UCS_OK);
    }
    uct_iface_h get() const { return iface_.get(); }
    uct_md_h md() const { return md_.get(); }
    uct_device_addr_t *device() { return reinterpret_cast<uct_device_addr_t *>(device_.data()); }
    uct_iface_addr_t *address() { return reinterpret_cast<uct_iface_addr_t *>(address_.data()); }
    unsigned progress() const { return get()->ops.iface_progress(get()); }

private:
    const Uct &uct_ = Ucx::get().uct;
    OpenMd md_;
    OpenIface iface_;
    std::vector<unsigned char> device_;
    std::vector<unsigned char> address_;
};

class Uct : public testing::Test {
protected:
    void SetUp() override {
        load_plugin();
        here_ = std::make_unique<Side>();
        there_ = std::make_unique<Side>();
        ASSERT_NE(here_->get(), nullptr);
        ASSERT_NE(there_->get(), nullptr);
        uct_ep_params_t params{};
        params.field_mask =
            UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.iface = here_->get();
        params.dev_addr = there_->device();
        params.iface_addr = there_->address();
        ASSERT_EQ(ops().ep_create(&params, &ep_), UCS_OK);
    }
    void TearDown() override {
        if (ep_ != nullptr) {
            ops().ep_destroy(ep_);
        }
    }
    const uct_iface_ops_t &ops() const { return here_->get()->ops; }

    const Ucx &ucx_ = Ucx::get();
    std::unique_ptr<Side> here_;
    std::unique_ptr<Side> there_;
    uct_ep_h ep_ = nullptr;
};

TEST_F(Uct, endpoint_is_connected_to_its_peer_and_to_nobody_else) {
    const auto is_connected =
        reinterpret_cast<int (*)(uct_ep_h, const void *)>(ucx_.symbol("uct_ep_is_connected"));
    if (is_connected == nullptr) {
        GTEST_SKIP() << "this UCX does not ask";
    }
    Side other;
    const auto ask = [&](Side &side, uint64_t mask) {
        unsigned char params[32] = {};
        store(params, 0, mask);
        store(params, kConnectedDeviceAddr, side.device());
        store(params, kConnectedIfaceAddr, side.address());
        return is_connected(ep_, params);
    };
    constexpr uint64_t kBoth = kConnectedFieldDeviceAddr | kConnectedFieldIfaceAddr;
    EXPECT_EQ(ask(*there_, kBoth), 1);
    EXPECT_EQ(ask(other, kBoth), 0) << "it is reachable, no more";
    EXPECT_EQ(ask(*here_, kBoth), 0);
    EXPECT_EQ(ask(*there_, kConnectedFieldDeviceAddr), 0);
}

TEST_F(Uct, interface_with_an_impossible_alignment_is_refused_as_by_ucx_itself) {
    constexpr uint64_t kAlignment = UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT;
    constexpr uint64_t kOffset = UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;
    struct {
        uint64_t fields;
        size_t alignment;
        size_t offset;
    } const cases[] = {{kAlignment, 0, 0},
                       {kAlignment, 3, 1},
                       {kOffset, 0, 11},
                       {kOffset, 8, 8},
                       {kAlignment, 1, 0},
                       {kAlignment | kOffset, 64, 8},
                       {kAlignment | kOffset, 8, 8}};
    const OpenMd posix(ucx_.component("posix"), "posix");
    for (const auto &asked : cases) {
        SCOPED_TRACE(std::to_string(asked.alignment) + " " + std::to_string(asked.offset));
        uct_iface_params_t params{};
        params.field_mask = asked.fields;
        params.am_alignment = asked.alignment;
        params.am_align_offset = asked.offset;
        EXPECT_EQ(OpenIface(here_->md(), "gpushm", params).status(),
                  OpenIface(posix.get(), "posix", params).status());
    }
}

TEST_F(Uct, transfer_of_nothing_needs_no_key) {
    char byte = 0;
    for (const size_t count : {0, 1}) {
        const uct_iov_t nothing = {&byte, 0, nullptr, 0, 1};
        EXPECT_EQ(ops().ep_put_zcopy(ep_, &nothing, count, 0, UCT_INVALID_RKEY, nullptr), UCS_OK);
        EXPECT_EQ(ops().ep_get_zcopy(ep_, &nothing, count, 0, UCT_INVALID_RKEY, nullptr), UCS_OK);
    }
    const uct_iov_t no_repeat = {&byte, 1, nullptr, 0, 0};
    EXPECT_EQ(ops().ep_put_zcopy(ep_, &no_repeat, 1, 0, UCT_INVALID_RKEY, nullptr), UCS_OK);
}

TEST_F(Uct, copy_of_nothing_between_memory_kinds_is_one) {
    const OpenMd md(ucx_.component("gpushm"), "gpucopy");
    ASSERT_NE(md.get(), nullptr);
    const OpenIface iface(md.get(), "gpushm");
    ASSERT_NE(iface.get(), nullptr);
    const uct_iface_ops_t &copies = iface.get()->ops;
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = iface.get();
    uct_ep_h ep = nullptr;
    ASSERT_EQ(copies.ep_create(&params, &ep), UCS_OK);
    const uct_iov_t nothing = {nullptr, 0, nullptr, 0, 1};
    EXPECT_EQ(copies.ep_put_short(ep, nullptr, 0, 0, UCT_INVALID_RKEY), UCS_OK);
    EXPECT_EQ(copies.ep_get_short(ep, nullptr, 0, 0, UCT_INVALID_RKEY), UCS_OK);
    EXPECT_FALSE(
        UCS_STATUS_IS_ERR(copies.ep_put_zcopy(ep, &nothing, 1, 0, UCT_INVALID_RKEY, nullptr)));
    EXPECT_FALSE(
        UCS_STATUS_IS_ERR(copies.ep_get_zcopy(ep, &nothing, 1, 0, UCT_INVALID_RKEY, nullptr)));
    copies.iface_progress(iface.get());
    EXPECT_EQ(copies.iface_flush(iface.get(), 0, nullptr), UCS_OK);
    copies.ep_destroy(ep);
}

TEST_F(Uct, transfer_without_a_key_is_refused) {
    char byte = 0;
    const uct_iov_t one = {&byte, 1, nullptr, 0, 1};
    EXPECT_EQ(ops().ep_put_zcopy(ep_, &one, 1, 0, UCT_INVALID_RKEY, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_get_zcopy(ep_, &one, 1, 0, UCT_INVALID_RKEY, nullptr),
              UCS_ERR_INVALID_PARAM);
}

size_t pack_nothing(void *, void *) {
    return 0;
}

TEST_F(Uct, impossible_message_ids_are_refused) {
    char byte = 0;
    const uct_iov_t one = {&byte, 1, nullptr, 0, 1};
    constexpr uint8_t kId = UCT_AM_ID_MAX;
    EXPECT_EQ(ops().ep_am_short(ep_, kId, 0, &byte, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_short_iov(ep_, kId, &one, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_bcopy(ep_, kId, pack_nothing, nullptr, 0), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_zcopy(ep_, kId, &byte, 1, &one, 1, 0, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(there_->progress(), 0u) << "nothing was sent";
}

TEST_F(Uct, messages_beyond_the_limits_are_refused) {
    uct_iface_attr_t attributes{};
    ASSERT_EQ(ucx_.uct.iface_query(here_->get(), &attributes), UCS_OK);
    std::vector<char> bytes(attributes.cap.am.max_zcopy + 1);
    const auto piece = [&](size_t length) {
        return uct_iov_t{bytes.data(), length, nullptr, 0, 1};
    };
    const uct_iov_t one = piece(1);
    const uct_iov_t long_short = piece(attributes.cap.am.max_short + 1);
    const uct_iov_t long_zcopy = piece(bytes.size());
    const auto header = static_cast<unsigned>(attributes.cap.am.max_hdr);
    const std::vector<uct_iov_t> pieces(attributes.cap.am.max_iov + 1, one);
    EXPECT_EQ(ops().ep_am_short(ep_, 0, 0, bytes.data(), attributes.cap.am.max_short),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_short_iov(ep_, 0, &long_short, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_zcopy(ep_, 0, bytes.data(), header + 1, &one, 1, 0, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_zcopy(ep_, 0, nullptr, 0, &long_zcopy, 1, 0, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ops().ep_am_zcopy(ep_, 0, nullptr, 0, pieces.data(), pieces.size(), 0, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(there_->progress(), 0u) << "nothing was sent";
    EXPECT_EQ(ops().ep_am_zcopy(ep_, 0, bytes.data(), header, nullptr, 0, 0, nullptr), UCS_OK)
        << "no piece at all";
}

TEST_F(Uct, device_memory_is_said_to_lie_on_its_gpu) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) {
        GTEST_SKIP() << "no CUDA driver";
    }
    const OpenMd md(ucx_.component("gpushm"), "gpucopy");
    ASSERT_NE(md.get(), nullptr);
    const auto get_attribute =
        reinterpret_cast<int (*)(int *, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
    const auto retain =
        reinterpret_cast<int (*)(void **, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    const auto set_current = reinterpret_cast<int (*)(void *)>(dlsym(driver, "cuCtxSetCurrent"));
    ASSERT_EQ(reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0), 0);
    int count = 0;
    ASSERT_EQ(reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDeviceGetCount"))(&count), 0);
    for (int gpu = 0; gpu < count; ++gpu) {
        SCOPED_TRACE(gpu);
        constexpr int kPciBusId = 33;  // CU_DEVICE_ATTRIBUTE_PCI_BUS_ID
        int bus = -1;
        void *context = nullptr;
        ASSERT_EQ(get_attribute(&bus, kPciBusId, gpu), 0);
        ASSERT_EQ(retain(&context, gpu), 0);
        ASSERT_EQ(set_current(context), 0);
        for (const ucs_memory_type_t type : {UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED}) {
            const uct_md_h handle = md.get();
            const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
            uct_mem_alloc_params_t params{};
            params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                                UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                                UCT_MEM_ALLOC_PARAM_FIELD_NAME;
            params.flags = UCT_MD_MEM_ACCESS_ALL;
            params.mem_type = type;
            params.mds.mds = &handle;
            params.mds.count = 1;
            params.name = "test";
            struct {
                uct_allocated_memory_t memory;
                unsigned char spare[16];  // the struct grew in 1.19
            } allocated{};
            ASSERT_EQ(ucx_.uct.mem_alloc(4096, &method, 1, &params, &allocated.memory), UCS_OK);
            uct_md_mem_attr_t attributes{};
            attributes.field_mask = UCT_MD_MEM_ATTR_FIELD_SYS_DEV;
            ASSERT_EQ(ucx_.uct.md_mem_query(md.get(), allocated.memory.address, 1, &attributes),
                      UCS_OK);
            EXPECT_EQ(bus_of(attributes.sys_dev), type == UCS_MEMORY_TYPE_CUDA ? bus : -1);
            ucx_.uct.mem_free(&allocated.memory);
        }
    }
}

/** The calls of the tracer of one side. */
struct Traced {
    uct_am_trace_type_t type;
    uint8_t id;
    std::string data;
};

void trace(void *argument, uct_am_trace_type_t type, uint8_t id, const void *data, size_t length,
           char *text, size_t max) {
    static_cast<std::vector<Traced> *>(argument)->push_back(
        {type, id, {static_cast<const char *>(data), length}});
    strncpy(text, "a message", max);
}

ucs_status_t take(void *, void *, size_t, unsigned) {
    return UCS_OK;
}

size_t pack_text(void *destination, void *) {
    memcpy(destination, "packed", 6);
    return 6;
}

TEST_F(Uct, tracer_is_told_of_each_message) {
    const auto set_option = reinterpret_cast<ucs_status_t (*)(const char *, const char *)>(
        ucx_.symbol("ucs_global_opts_set_value"));
    const auto set_tracer = reinterpret_cast<decltype(&uct_iface_set_am_tracer)>(
        ucx_.symbol("uct_iface_set_am_tracer"));
    ASSERT_TRUE(set_option != nullptr && set_tracer != nullptr);
    std::vector<Traced> sent;
    std::vector<Traced> received;
    ASSERT_EQ(set_tracer(here_->get(), trace, &sent), UCS_OK);
    ASSERT_EQ(set_tracer(there_->get(), trace, &received), UCS_OK);
    ASSERT_EQ(ucx_.uct.iface_set_am_handler(there_->get(), 5, take, nullptr, 0), UCS_OK);
    const auto send_all = [&] {
        char text[] = "text";
        const uct_iov_t piece = {text, 4, nullptr, 0, 1};
        EXPECT_EQ(ops().ep_am_short(ep_, 5, 0x4141414141414141, text, 4), UCS_OK);
        EXPECT_EQ(ops().ep_am_short_iov(ep_, 5, &piece, 1), UCS_OK);
        EXPECT_EQ(ops().ep_am_bcopy(ep_, 5, pack_text, nullptr, 0), 6);
        EXPECT_EQ(ops().ep_am_zcopy(ep_, 5, "header", 6, &piece, 1, 0, nullptr), UCS_OK);
        for (int i = 0; i < 100; ++i) {
            there_->progress();
        }
    };
    send_all();
    EXPECT_TRUE(sent.empty() && received.empty()) << "nobody asked for a line";
    testing::internal::CaptureStdout();
    ASSERT_EQ(set_option("LOG_LEVEL", "data"), UCS_OK);
    send_all();
    ASSERT_EQ(set_option("LOG_LEVEL", "warn"), UCS_OK);
    const std::string lines = testing::internal::GetCapturedStdout();
    ASSERT_EQ(sent.size(), 4u);
    ASSERT_EQ(received.size(), 4u);
    const std::string sent_data[] = {"AAAAAAAAtext", "text", "packed", "header"};
    const std::string received_data[] = {"AAAAAAAAtext", "text", "packed", "headertext"};
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(sent[i].data, sent_data[i]);
        EXPECT_EQ(sent[i].type, UCT_AM_TRACE_TYPE_SEND);
        EXPECT_EQ(sent[i].id, 5);
        EXPECT_EQ(received[i].data, received_data[i]);
        EXPECT_EQ(received[i].type, UCT_AM_TRACE_TYPE_RECV);
    }
    if (!lines.empty()) {  // else UCX was built without such lines
        EXPECT_NE(lines.find("TX am_id 5 len 10 a message"), std::string::npos) << lines;
        EXPECT_NE(lines.find("RX am_id 5 len 12 a message"), std::string::npos) << lines;
    }
}

}  // namespace
}  // namespace abi_test
