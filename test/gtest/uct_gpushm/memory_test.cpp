// SPDX-License-Identifier: BSD-3-Clause
// UCX's calls while memory is short: each function returns a status, and later calls work.
#include "test/gtest/uct_gpushm/abi/ucx.hpp"
#include "test/gtest/failing_malloc.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace abi_test {
namespace {

using namespace gpushm::abi;
using gpushm::test::FailingMalloc;

constexpr size_t kBytes = 100000;
constexpr uint8_t kMessage = 5;

/** Loads the plugin into the UCX under test. */
bool load_plugin() {
    static const bool loaded = [] {
        void *plugin = dlopen(GPUSHM_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
        void *enter = plugin != nullptr ? dlsym(plugin, "gpushm_register") : nullptr;
        if (enter != nullptr) {
            reinterpret_cast<void (*)(const void *)>(enter)(Ucx::get().code());
        }
        return enter != nullptr;
    }();
    return loaded;
}

ucs_status_t take(void *argument, void *, size_t, unsigned) {
    ++*static_cast<unsigned *>(argument);
    return UCS_OK;
}
size_t pack_text(void *destination, void *) {
    memcpy(destination, "packed", 6);
    return 6;
}
void ignore_request(uct_pending_req_t *, void *) {}
ucs_status_t finish_request(uct_pending_req_t *) {
    return UCS_OK;
}

/** An endpoint of the interface that copies within a process. */
class Copier {
public:
    Copier() : md_(Ucx::get().component("gpushm"), "gpucopy"), iface_(md_.get(), "gpushm") {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = iface_.get();
        EXPECT_EQ(ops().ep_create(&params, &ep), UCS_OK);
    }
    ~Copier() { ops().ep_destroy(ep); }
    uct_md_h md() const { return md_.get(); }
    const uct_iface_ops_t &ops() const { return iface_.get()->ops; }
    void settle() const {
        for (int i = 0; i < 1000; ++i) {
            ops().iface_progress(iface_.get());
        }
    }
    uct_ep_h ep = nullptr;

private:
    OpenMd md_;
    OpenIface iface_;
};

/** Two interfaces of one process, and an endpoint from the first to the second. */
class Connection {
public:
    Connection()
        : md_(Ucx::get().component("gpushm"), "gpushm"),
          here_(md_.get(), "gpushm"),
          there_(md_.get(), "gpushm") {
        EXPECT_EQ(uct.iface_set_am_handler(there(), kMessage, take, &messages_, 0), UCS_OK);
        uct_iface_attr_t attributes{};
        EXPECT_EQ(uct.iface_query(there(), &attributes), UCS_OK);
        device_.resize(attributes.device_addr_len);
        address_.resize(attributes.iface_addr_len);
        EXPECT_EQ(uct.iface_get_device_address(there(), device()), UCS_OK);
        EXPECT_EQ(uct.iface_get_address(there(), address()), UCS_OK);
        EXPECT_EQ(uct.md_mem_reg(md(), remote.data(), kBytes, UCT_MD_MEM_ACCESS_ALL, &memh_),
                  UCS_OK);
        uct_md_attr_t md_attributes{};
        EXPECT_EQ(uct.md_query(md(), &md_attributes), UCS_OK);
        packed_.resize(md_attributes.rkey_packed_size);
        EXPECT_EQ(uct.md_mkey_pack(md(), memh_, packed_.data()), UCS_OK);
        EXPECT_EQ(uct.rkey_unpack(component(), packed_.data(), &bundle_), UCS_OK);
        EXPECT_EQ(create(&ep), UCS_OK);
    }
    ~Connection() {
        ops().ep_destroy(ep);
        uct.rkey_release(component(), &bundle_);
        uct.md_mem_dereg(md(), memh_);
    }

    ucs_status_t create(uct_ep_h *made) {
        uct_ep_params_t params{};
        params.field_mask =
            UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.iface = here();
        params.dev_addr = device();
        params.iface_addr = address();
        return ops().ep_create(&params, made);
    }
    unsigned progress() { return ops().iface_progress(here()) + ops().iface_progress(there()); }
    void settle() {
        for (int quiet = 0; quiet < 20; quiet = progress() != 0 ? 0 : quiet + 1) {
        }
    }
    /** Checks that a message and a put arrive, unless the connection has failed and has no new
     * endpoint.
     */
    void expect_works() {
        settle();
        uct_ep_h fresh = nullptr;
        if (create(&fresh) != UCS_OK) {
            return;  // the connection has ended with an error, and its last endpoint is there still
        }
        const unsigned before = messages_;
        EXPECT_EQ(ops().ep_am_short(fresh, kMessage, 0, nullptr, 0), UCS_OK);
        settle();
        EXPECT_EQ(messages_, before + 1);
        ops().ep_destroy(fresh);
    }

    uct_component_h component() const { return Ucx::get().component("gpushm"); }
    uct_md_h md() const { return md_.get(); }
    uct_iface_h here() const { return here_.get(); }
    uct_iface_h there() const { return there_.get(); }
    const uct_iface_ops_t &ops() const { return here()->ops; }
    uct_rkey_t rkey() const { return bundle_.rkey; }
    const void *packed() const { return packed_.data(); }
    uct_mem_h memh() const { return memh_; }
    uct_iov_t piece(size_t length) { return {local.data(), length, nullptr, 0, 1}; }
    uint64_t remote_address() const { return reinterpret_cast<uint64_t>(remote.data()); }

    const Uct &uct = Ucx::get().uct;
    std::vector<char> local = std::vector<char>(kBytes);
    std::vector<char> remote = std::vector<char>(kBytes);
    uct_ep_h ep = nullptr;
    uct_completion_t completion{};
    uct_pending_req_t request{};
    std::unique_ptr<Copier> copier;  // made by make_copier()

private:
    uct_device_addr_t *device() { return reinterpret_cast<uct_device_addr_t *>(device_.data()); }
    uct_iface_addr_t *address() { return reinterpret_cast<uct_iface_addr_t *>(address_.data()); }

    OpenMd md_;
    OpenIface here_;
    OpenIface there_;
    unsigned messages_ = 0;
    std::vector<unsigned char> device_;
    std::vector<unsigned char> address_;
    uct_mem_h memh_ = nullptr;
    std::vector<unsigned char> packed_;
    uct_rkey_bundle_t bundle_{};
};

void ignore(uct_completion_t *) {}

/** Memory of the first GPU, whose primary context becomes current. Null: there is no GPU. */
class DeviceMemory {
public:
    explicit DeviceMemory(size_t length) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (driver == nullptr || find<int (*)(unsigned)>(driver, "cuInit")(0) != 0) {
            return;
        }
        void *context = nullptr;
        free_ = find<int (*)(uint64_t)>(driver, "cuMemFree_v2");
        if (find<int (*)(void **, int)>(driver, "cuDevicePrimaryCtxRetain")(&context, 0) == 0 &&
            find<int (*)(void *)>(driver, "cuCtxSetCurrent")(context) == 0) {
            find<int (*)(uint64_t *, size_t)>(driver, "cuMemAlloc_v2")(&address_, length);
        }
    }
    ~DeviceMemory() {
        if (address_ != 0) {
            free_(address_);
        }
    }
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;
    uint64_t address() const { return address_; }
    void *data() const { return reinterpret_cast<void *>(address_); }

private:
    template <typename Function>
    static Function find(void *driver, const char *name) {
        return reinterpret_cast<Function>(dlsym(driver, name));
    }
    int (*free_)(uint64_t) = nullptr;
    uint64_t address_ = 0;
};

/** Lives until the process ends. */
DeviceMemory &device_memory() {
    static auto *const memory = new DeviceMemory(kBytes);
    return *memory;
}

/** Returns a status, or a length. */
using Call = std::function<ssize_t(Connection &)>;

struct Case {
    const char *name;
    Call call;
    Call prepare = {};
};

ssize_t start_transfer(Connection &at, bool is_put) {
    const uct_iov_t all = at.piece(kBytes);
    at.completion = {ignore, 1, UCS_OK};
    return is_put ? at.ops().ep_put_zcopy(at.ep, &all, 1, at.remote_address(), at.rkey(),
                                          &at.completion)
                  : at.ops().ep_get_zcopy(at.ep, &all, 1, at.remote_address(), at.rkey(),
                                          &at.completion);
}

ssize_t send_both(Connection &at) {
    const uct_iov_t text = at.piece(4000);
    at.ops().ep_am_bcopy(at.ep, kMessage, pack_text, nullptr, 0);
    return at.ops().ep_am_zcopy(at.ep, kMessage, "header", 6, &text, 1, 0, nullptr);
}

/** Makes progress until no operation is in progress. */
ssize_t progress_to_the_end(Connection &at) {
    at.settle();
    return UCS_OK;
}

const Case kCases[] = {
    {"md_open",
     [](Connection &at) {
         const OpenMd md(at.component(), "gpushm");
         return ssize_t{md.get() != nullptr ? UCS_OK : UCS_ERR_NO_MEMORY};
     }},
    {"iface_open", [](Connection &at) { return ssize_t{OpenIface(at.md(), "gpushm").status()}; }},
    {"iface_query",
     [](Connection &at) {
         uct_iface_attr_t attributes{};
         return ssize_t{at.uct.iface_query(at.here(), &attributes)};
     }},
    {"md_query",
     [](Connection &at) {
         uct_md_attr_t attributes{};
         return ssize_t{at.uct.md_query(at.md(), &attributes)};
     }},
    {"mem_reg",
     [](Connection &at) {
         uct_mem_h memh = nullptr;
         const ucs_status_t status =
             at.uct.md_mem_reg(at.md(), at.local.data(), 100, UCT_MD_MEM_ACCESS_ALL, &memh);
         return ssize_t{status == UCS_OK ? at.uct.md_mem_dereg(at.md(), memh) : status};
     }},
    {"mkey_pack",
     [](Connection &at) {
         unsigned char key[1024];
         return ssize_t{at.uct.md_mkey_pack(at.md(), at.memh(), key)};
     }},
    {"rkey_unpack",
     [](Connection &at) {
         uct_rkey_bundle_t bundle{};
         const ucs_status_t status = at.uct.rkey_unpack(at.component(), at.packed(), &bundle);
         return ssize_t{status == UCS_OK ? at.uct.rkey_release(at.component(), &bundle) : status};
     }},
    {"ep_create",
     [](Connection &at) {
         uct_ep_h ep = nullptr;
         const ucs_status_t status = at.create(&ep);
         if (status == UCS_OK) {
             at.ops().ep_destroy(ep);
         }
         return ssize_t{status};
     }},
    {"ep_am_short",
     [](Connection &at) { return ssize_t{at.ops().ep_am_short(at.ep, kMessage, 0, "text", 4)}; }},
    {"ep_am_bcopy",
     [](Connection &at) { return at.ops().ep_am_bcopy(at.ep, kMessage, pack_text, nullptr, 0); }},
    {"ep_am_zcopy", send_both},
    {"ep_put_zcopy", [](Connection &at) { return start_transfer(at, true); }},
    {"ep_get_zcopy", [](Connection &at) { return start_transfer(at, false); }},
    {"ep_flush",
     [](Connection &at) {
         at.completion = {ignore, 2, UCS_OK};
         return ssize_t{at.ops().ep_flush(at.ep, 0, &at.completion)};
     },
     [](Connection &at) { return start_transfer(at, true); }},
    {"ep_flush_cancel",
     [](Connection &at) {
         at.completion = {ignore, 2, UCS_OK};
         return ssize_t{at.ops().ep_flush(at.ep, UCT_FLUSH_FLAG_CANCEL, &at.completion)};
     },
     [](Connection &at) { return start_transfer(at, true); }},
    {"ep_fence", [](Connection &at) { return ssize_t{at.ops().ep_fence(at.ep, 0)}; }},
    {"ep_pending_add",
     [](Connection &at) {
         at.request.func = finish_request;
         const ucs_status_t status = at.ops().ep_pending_add(at.ep, &at.request, 0);
         if (status == UCS_OK) {
             at.ops().ep_pending_purge(at.ep, ignore_request, nullptr);
         }
         return ssize_t{status};
     }},
    {"iface_progress_of_a_put", progress_to_the_end,
     [](Connection &at) { return start_transfer(at, true); }},
    {"iface_progress_of_a_get", progress_to_the_end,
     [](Connection &at) { return start_transfer(at, false); }},
    {"iface_progress_of_messages", progress_to_the_end, send_both},
    {"iface_flush",
     [](Connection &at) { return ssize_t{at.ops().iface_flush(at.here(), 0, nullptr)}; },
     [](Connection &at) { return start_transfer(at, true); }},
};

ssize_t make_copier(Connection &at) {
    at.copier = std::make_unique<Copier>();
    return UCS_OK;
}

ssize_t copy_short(const Copier &copier, bool is_put) {
    char bytes[64] = {};
    return is_put ? copier.ops().ep_put_short(copier.ep, bytes, sizeof(bytes),
                                              device_memory().address(), UCT_INVALID_RKEY)
                  : copier.ops().ep_get_short(copier.ep, bytes, sizeof(bytes),
                                              device_memory().address(), UCT_INVALID_RKEY);
}

ssize_t copy_all(Connection &at, bool is_put) {
    const Copier &copier = *at.copier;
    const uct_iov_t all = at.piece(kBytes);
    at.completion = {ignore, 1, UCS_OK};
    const ucs_status_t status =
        is_put ? copier.ops().ep_put_zcopy(copier.ep, &all, 1, device_memory().address(),
                                           UCT_INVALID_RKEY, &at.completion)
               : copier.ops().ep_get_zcopy(copier.ep, &all, 1, device_memory().address(),
                                           UCT_INVALID_RKEY, &at.completion);
    copier.settle();
    return status;
}

ssize_t transfer_device(Connection &at, bool is_put) {
    const uct_iov_t all = {device_memory().data(), kBytes, nullptr, 0, 1};
    at.completion = {ignore, 1, UCS_OK};
    return is_put ? at.ops().ep_put_zcopy(at.ep, &all, 1, at.remote_address(), at.rkey(),
                                          &at.completion)
                  : at.ops().ep_get_zcopy(at.ep, &all, 1, at.remote_address(), at.rkey(),
                                          &at.completion);
}

ssize_t send_device(Connection &at) {
    const uct_iov_t piece = {device_memory().data(), 4000, nullptr, 0, 1};
    at.completion = {ignore, 1, UCS_OK};
    return at.ops().ep_am_zcopy(at.ep, kMessage, "header", 6, &piece, 1, 0, &at.completion);
}

const Case kDeviceCases[] = {
    {"put_short", [](Connection &at) { return copy_short(*at.copier, true); }, make_copier},
    {"get_short", [](Connection &at) { return copy_short(*at.copier, false); }, make_copier},
    {"put_zcopy", [](Connection &at) { return copy_all(at, true); }, make_copier},
    {"get_zcopy", [](Connection &at) { return copy_all(at, false); }, make_copier},
    {"mem_query",
     [](Connection &at) {
         uct_md_mem_attr_t attributes{};
         attributes.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
         return ssize_t{
             at.uct.md_mem_query(at.copier->md(), device_memory().data(), kBytes, &attributes)};
     },
     make_copier},
    {"ep_put_zcopy", [](Connection &at) { return transfer_device(at, true); }},
    {"ep_get_zcopy", [](Connection &at) { return transfer_device(at, false); }},
    {"ep_am_zcopy", send_device},
    {"iface_progress_of_a_put", progress_to_the_end,
     [](Connection &at) { return transfer_device(at, true); }},
    {"iface_progress_of_a_get", progress_to_the_end,
     [](Connection &at) { return transfer_device(at, false); }},
    {"iface_progress_of_a_message", progress_to_the_end, send_device},
};

/** Suppresses the log of errors that a test provokes. */
class QuietLog {
public:
    QuietLog() { set("fatal"); }
    ~QuietLog() { set("warn"); }
    QuietLog(const QuietLog &) = delete;
    QuietLog &operator=(const QuietLog &) = delete;

private:
    static void set(const char *level) {
        reinterpret_cast<ucs_status_t (*)(const char *, const char *)>(
            Ucx::get().symbol("ucs_global_opts_set_value"))("LOG_LEVEL", level);
    }
};

void expect_statuses(const Case &tested) {
    if (!gpushm::test::malloc_can_fail()) {
        GTEST_SKIP() << "a sanitizer brings its own malloc";
    }
    ASSERT_TRUE(load_plugin());
    const QuietLog quiet;
    bool failed = true;
    for (unsigned n = 0; failed && !testing::Test::HasFailure(); ++n) {
        SCOPED_TRACE(n);
        Connection connection;
        if (tested.prepare) {
            tested.prepare(connection);
        }
        ssize_t result;
        {
            const FailingMalloc malloc("libuct_gpushm.so", n);
            result = tested.call(connection);
            failed = malloc.has_failed();
        }
        EXPECT_TRUE(failed || result >= UCS_OK) << result;
        connection.expect_works();
    }
}

class UctMemory : public testing::TestWithParam<Case> {};

TEST_P(UctMemory, call_returns_a_status_and_the_next_one_works) {
    expect_statuses(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Calls, UctMemory, testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

class UctDeviceMemory : public testing::TestWithParam<Case> {};

TEST_P(UctDeviceMemory, call_returns_a_status_and_the_next_one_works) {
    ASSERT_TRUE(load_plugin());
    if (device_memory().data() == nullptr) {
        GTEST_SKIP() << "no GPU";
    }
    expect_statuses(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Calls, UctDeviceMemory, testing::ValuesIn(kDeviceCases),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace abi_test
