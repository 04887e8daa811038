// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/uct_gpushm/abi/component.hpp"
#include "test/gtest/uct_gpushm/abi/ucx.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace abi_test {

using namespace gpushm::abi;

Config last_config;

namespace {

alignas(4096) unsigned char gpu_pages[kGpuSize];

constexpr uint64_t kGpuTypes = (1u << UCS_MEMORY_TYPE_CUDA) | (1u << UCS_MEMORY_TYPE_CUDA_MANAGED);
constexpr uint64_t kAllTypes = kGpuTypes | (1u << UCS_MEMORY_TYPE_HOST);

class TestDomain : public MemoryDomain {
public:
    explicit TestDomain(bool keyed) : keyed_(keyed) {}
    ~TestDomain() override { ++told().domains_closed; }

    bool keyed() const { return keyed_; }

    void query(MdAttributes &attributes) const override {
        ++told().domain_queries;
        attributes.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_ALLOC;
        if (keyed_) {
            attributes.flags |= UCT_MD_FLAG_NEED_RKEY | UCT_MD_FLAG_INVALIDATE;
        }
        attributes.reg_mem_types = kAllTypes;
        attributes.access_mem_types = keyed_ ? 1u << UCS_MEMORY_TYPE_HOST : kAllTypes;
        attributes.detect_mem_types = kGpuTypes;
        attributes.alloc_mem_types = 1u << UCS_MEMORY_TYPE_CUDA;
    }
    size_t rkey_packed_size() const override { return keyed_ ? kKeySize : 0; }

    ucs_status_t mem_alloc(size_t &length, void *&address, ucs_memory_type_t mem_type,
                           uct_mem_h &memh) override {
        told().alloc_type = mem_type;
        length = kGpuSize;
        address = gpu_pages;
        memh = this;
        return UCS_OK;
    }

    ucs_status_t mem_free(uct_mem_h memh) override {
        told().frees += memh == this;
        return UCS_OK;
    }

    ucs_status_t mem_reg(void *address, size_t length, uct_mem_h &memh) override {
        if (told().throw_in_mem_reg) {
            throw std::bad_alloc{};
        }
        told().registered_address = address;
        told().registered_length = length;
        memh = this;
        return UCS_OK;
    }

    ucs_status_t mem_dereg(uct_mem_h memh, bool invalidates) override {
        told().deregistrations += memh == this;
        told().invalidations += memh == this && invalidates;
        return UCS_OK;
    }

    ucs_status_t mem_query(const void *address, size_t, MemoryAttributes &attributes) override {
        if (address < gpu_pages || address >= gpu_pages + kGpuSize) {
            return UCS_ERR_INVALID_ADDR;
        }
        attributes.mem_type = UCS_MEMORY_TYPE_CUDA_MANAGED;
        attributes.sys_dev = kSystemDevice;
        attributes.base_address = gpu_pages;
        attributes.alloc_length = kGpuSize;
        return UCS_OK;
    }

    ucs_status_t mkey_pack(uct_mem_h memh, const void *, size_t, void *rkey_buffer) override {
        std::memset(rkey_buffer, memh == this ? 0x77 : 0x11, kKeySize);
        return UCS_OK;
    }

private:
    bool keyed_;
};

std::vector<std::string> md_names() {
    return {"keyed", "copy", "broken"};
}

std::unique_ptr<MemoryDomain> md_open(const std::string &name) {
    return name == "broken" ? nullptr : std::make_unique<TestDomain>(name == "keyed");
}

ucs_status_t rkey_unpack(const void *rkey_buffer, uct_rkey_t *rkey, void **handle) {
    const auto *bytes = static_cast<const unsigned char *>(rkey_buffer);
    ++told().keys_unpacked;
    told().key_was_right =
        std::all_of(bytes, bytes + kKeySize, [](unsigned char byte) { return byte == 0x77; });
    *rkey = kRkey;
    *handle = &told();
    return UCS_OK;
}

ucs_status_t rkey_release(uct_rkey_t rkey, void *handle) {
    if (handle == &told()) {
        told().released_rkey = rkey;
    }
    return UCS_OK;
}

std::string device_name(MemoryDomain &md) {
    return static_cast<TestDomain &>(md).keyed() ? "abidevice" : "";
}

// ---------------------------------------------------------------- interface

constexpr uint64_t kAddress = 0x0123456789abcdef;

void estimate_perf(uct_iface_h, PerfEstimate &estimate) {
    told().estimate = estimate;
    estimate.send_pre_overhead = 1e-6;
    estimate.send_post_overhead = 2e-6;
    estimate.recv_overhead = 3e-6;
    estimate.bandwidth_dedicated = 4e9;
    estimate.bandwidth_shared = 5e9;
    estimate.latency = 6e-6;
}

bool is_reachable(uct_iface_h, const void *device_addr, size_t device_addr_length,
                  const void *iface_addr, size_t iface_addr_length) {
    told().device_addr_length = device_addr_length;
    told().iface_addr_length = iface_addr_length;
    told().had_iface_addr = iface_addr != nullptr;
    const auto address = load<uint64_t>(device_addr, 0);
    return address == kAddress && !told().answer_unreachable;
}

bool is_connected(uct_ep_h, const void *device_addr, const void *iface_addr) {
    return load<uint64_t>(device_addr, 0) == kAddress &&
           load<uint64_t>(iface_addr, 0) == told().connected_to;
}

const IfaceCallbacks callbacks{estimate_perf, is_reachable, is_connected};

ucs_status_t iface_query(uct_iface_h iface, uct_iface_attr_t *attributes) {
    iface_query_defaults(reinterpret_cast<Iface *>(iface), attributes);
    attributes->device_addr_len = sizeof(kAddress);
    attributes->iface_addr_len = sizeof(kAddress);
    attributes->cap.flags = UCT_IFACE_FLAG_CB_SYNC;
    attributes->overhead = 7e-6;
    attributes->bandwidth = {8e9, 9e9};
    attributes->latency = {1e-5, 1e-9};
    return UCS_OK;
}

ucs_status_t get_device_address(uct_iface_h, uct_device_addr_t *address) {
    store(address, 0, kAddress);
    return UCS_OK;
}

void iface_close(uct_iface_h iface) {
    iface_cleanup(reinterpret_cast<Iface *>(iface));
    std::free(iface);
}

// UCX asserts that these exist. The tests do not call them.
ucs_status_t ep_flush(uct_ep_h, unsigned, uct_completion_t *) {
    return UCS_OK;
}
ucs_status_t ep_fence(uct_ep_h, unsigned) {
    return UCS_OK;
}
void ep_destroy(uct_ep_h) {}
ucs_status_t iface_flush(uct_iface_h, unsigned, uct_completion_t *) {
    return UCS_OK;
}
ucs_status_t iface_fence(uct_iface_h, unsigned) {
    return UCS_OK;
}
unsigned iface_progress(uct_iface_h) {
    return 0;
}

ucs_status_t iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                        const uct_iface_config_t *config, uct_iface_h *iface) {
    uct_iface_ops_t ops{};
    ops.ep_flush = ep_flush;
    ops.ep_fence = ep_fence;
    ops.ep_destroy = ep_destroy;
    ops.iface_flush = iface_flush;
    ops.iface_fence = iface_fence;
    ops.iface_progress = iface_progress;
    ops.iface_close = iface_close;
    ops.iface_query = iface_query;
    ops.iface_get_device_address = get_device_address;
    auto *ours = static_cast<Iface *>(std::calloc(1, sizeof(Iface)));
    const ucs_status_t status = iface_init(ours, &ops, &callbacks, md, worker, params, config);
    if (status != UCS_OK) {
        std::free(ours);
        return status;
    }
    std::memcpy(&last_config, config, sizeof(last_config));
    *iface = reinterpret_cast<uct_iface_h>(ours);
    return UCS_OK;
}

}  // namespace

Told &told() {
    static Told instance;
    return instance;
}

unsigned char *gpu_memory() {
    return gpu_pages;
}

const ComponentDescription &test_component() {
    static const ComponentDescription description{
        "abitest",
        md_names,
        md_open,
        rkey_unpack,
        rkey_release,
        "abitest",
        device_name,
        iface_open,
        "ABITEST_",
        {{"FLAG", "y", "A flag.", OptionType::boolean, offsetof(Config, flag)},
         {"SIZE", "32k", "A size.", OptionType::memory_size, offsetof(Config, size)},
         {"COUNT", "12", "A count.", OptionType::unsigned_integer, offsetof(Config, count)},
         {"TERNARY", "try", "A ternary.", OptionType::ternary_auto, offsetof(Config, ternary)},
         {"TIME", "200us", "A time.", OptionType::time, offsetof(Config, time)}},
        sizeof(Config)};
    return description;
}

bool register_test_component() {
    return register_component(test_component(), Ucx::get().code());
}

}  // namespace abi_test
