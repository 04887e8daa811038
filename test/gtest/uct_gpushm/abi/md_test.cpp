// SPDX-License-Identifier: BSD-3-Clause
// The adapters of component and memory domain, driven through the public API of the running UCX.
#include "test/gtest/uct_gpushm/abi/component.hpp"
#include "test/gtest/uct_gpushm/abi/fake_ucx.hpp"
#include "test/gtest/uct_gpushm/abi/ucx.hpp"

#include <gtest/gtest.h>

namespace abi_test {
namespace {

using namespace gpushm::abi;

class AbiMd : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(register_test_component());
        told() = Told{};
        component_ = ucx_.component("abitest");
        ASSERT_NE(component_, nullptr);
    }

    const Ucx &ucx_ = Ucx::get();
    const Uct &uct_ = Ucx::get().uct;
    uct_component_h component_ = nullptr;
};

TEST_F(AbiMd, component_registers_once) {
    EXPECT_TRUE(register_test_component());
    int count = 0;
    for (uct_component_h component : ucx_.components()) {
        count += component == component_;
    }
    EXPECT_EQ(count, 1);
    EXPECT_EQ(running_version().minor, ucx_.version.minor);
}

TEST_F(AbiMd, second_ucx_of_a_process_is_refused) {
    const FakeUcx second{"incomplete"};
    ASSERT_TRUE(second.is_loaded()) << dlerror();
    EXPECT_FALSE(register_component(test_component(), second.code()));
    EXPECT_NE(second.log().find("serves the UCX at " + ucx_.path() + ", not also that at " +
                                second.path() + ": use one UCX in a process"),
              std::string::npos)
        << second.log();
}

TEST_F(AbiMd, component_lists_its_domains) {
    uct_component_attr_t attributes{};
    attributes.field_mask =
        UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT | UCT_COMPONENT_ATTR_FIELD_FLAGS;
    ASSERT_EQ(uct_.component_query(component_, &attributes), UCS_OK);
    ASSERT_EQ(attributes.md_resource_count, 3u);
    EXPECT_EQ(attributes.flags, 0u);
    std::vector<uct_md_resource_desc_t> resources(3);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = resources.data();
    ASSERT_EQ(uct_.component_query(component_, &attributes), UCS_OK);
    EXPECT_STREQ(resources[0].md_name, "keyed");
    EXPECT_STREQ(resources[1].md_name, "copy");
}

TEST_F(AbiMd, domain_that_cannot_be_opened_is_an_error) {
    EXPECT_EQ(OpenMd(component_, "broken").get(), nullptr);
}

TEST_F(AbiMd, closing_destroys_the_domain) {
    { const OpenMd md{component_, "keyed"}; }
    EXPECT_EQ(told().domains_closed, 1);
}

TEST_F(AbiMd, attributes_reach_ucx) {
    const OpenMd md{component_, "keyed"};
    ASSERT_NE(md.get(), nullptr);
    uct_md_attr_t attributes;
    std::memset(&attributes, 0xa5, sizeof(attributes));
    ASSERT_EQ(uct_.md_query(md.get(), &attributes), UCS_OK);
    EXPECT_EQ(attributes.cap.flags & 0x7ff,
              uint64_t{UCT_MD_FLAG_REG | UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_NEED_RKEY |
                       UCT_MD_FLAG_INVALIDATE});
    EXPECT_EQ(attributes.cap.reg_mem_types, 7u);
    EXPECT_EQ(attributes.cap.access_mem_types, 1u);
    EXPECT_EQ(attributes.cap.detect_mem_types, 6u);
    EXPECT_EQ(attributes.cap.alloc_mem_types, 2u);
    EXPECT_EQ(attributes.cap.max_reg, SIZE_MAX);
    EXPECT_EQ(attributes.cap.max_alloc, UINT64_MAX);
    EXPECT_EQ(attributes.reg_cost.c, 0.0);
    EXPECT_EQ(attributes.reg_cost.m, 0.0);
    EXPECT_STREQ(attributes.component_name, "abitest");
    EXPECT_EQ(attributes.rkey_packed_size, kKeySize + 1);
    EXPECT_TRUE(ucs_cpu_is_set(0, &attributes.local_cpus));
    EXPECT_TRUE(ucs_cpu_is_set(1023, &attributes.local_cpus));
}

TEST_F(AbiMd, attributes_of_newer_versions_reach_ucx) {
    const auto query =
        reinterpret_cast<ucs_status_t (*)(uct_md_h, void *)>(ucx_.symbol("uct_md_query_v2"));
    using F = MdAttrField;
    const StructLayout<F> &fields = ucx_.layout->md_attr;
    if (query == nullptr || !fields.has(F::reg_alignment)) {
        GTEST_SKIP() << "this UCX has no uct_md_query_v2";
    }
    const OpenMd md{component_, "keyed"};
    Canvas canvas{fields.size()};
    canvas.set(fields[F::field_mask], UINT64_MAX);
    ASSERT_EQ(query(md.get(), canvas.data()), UCS_OK);
    EXPECT_TRUE(canvas.is_tail_untouched());
    EXPECT_EQ(canvas.get<uint64_t>(fields[F::cache_mem_types]), 7u);
    EXPECT_EQ(canvas.get<uint64_t>(fields[F::flags]) >> 11, 3u) << "INVALIDATE_RMA and _AMO";
    EXPECT_EQ(canvas.get<uint64_t>(fields[F::dmabuf_mem_types]), 0u);
    EXPECT_EQ(canvas.get<uint64_t>(fields[F::reg_nonblock_mem_types]), 0u);
    EXPECT_EQ(canvas.get<size_t>(fields[F::exported_mkey_packed_size]), 0u);
    EXPECT_EQ(canvas.get<size_t>(fields[F::reg_alignment]), 1u);
}

TEST_F(AbiMd, registration_passes_through) {
    const OpenMd md{component_, "keyed"};
    char buffer[100];
    uct_mem_h memh = nullptr;
    ASSERT_EQ(uct_.md_mem_reg(md.get(), buffer, sizeof(buffer), UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_OK);
    EXPECT_EQ(told().registered_address, buffer);
    EXPECT_EQ(told().registered_length, sizeof(buffer));
    EXPECT_EQ(uct_.md_mem_dereg(md.get(), memh), UCS_OK);
    EXPECT_EQ(told().deregistrations, 1);
}

TEST_F(AbiMd, failed_allocation_becomes_a_status) {
    const OpenMd md{component_, "keyed"};
    char buffer[100];
    uct_mem_h memh = nullptr;
    told().throw_in_mem_reg = true;
    EXPECT_EQ(uct_.md_mem_reg(md.get(), buffer, sizeof(buffer), UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_ERR_NO_MEMORY);
}

int completed_after = -1;

void complete(uct_completion_t *) {
    completed_after = told().deregistrations;
}

TEST_F(AbiMd, invalidation_completes_after_the_deregistration) {
    const OpenMd md{component_, "keyed"};
    char buffer[100];
    uct_mem_h memh = nullptr;
    ASSERT_EQ(uct_.md_mem_reg(md.get(), buffer, sizeof(buffer), UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_OK);
    uct_completion_t completion{complete, 1, UCS_OK};
    unsigned char params[32] = {};
    store(params, 0, kDeregFieldMemh | kDeregFieldFlags | kDeregFieldCompletion);
    store(params, kDeregMemh, memh);
    store(params, kDeregFlags, kDeregFlagInvalidate);
    store(params, kDeregCompletion, &completion);
    completed_after = -1;
    ASSERT_EQ(uct_.md_mem_dereg_v2(md.get(), params), UCS_OK);
    EXPECT_EQ(completed_after, 1);
    EXPECT_EQ(told().invalidations, 1);
    EXPECT_EQ(completion.count, 0);
}

TEST_F(AbiMd, deregistration_with_wrong_parameters_is_refused) {
    const OpenMd keyed{component_, "keyed"};
    const OpenMd copy{component_, "copy"};
    char buffer[100];
    uct_mem_h memh = nullptr;
    ASSERT_EQ(uct_.md_mem_reg(keyed.get(), buffer, sizeof(buffer), UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_OK);
    uct_completion_t completion{complete, 1, UCS_OK};
    unsigned char params[32] = {};
    store(params, kDeregMemh, memh);
    store(params, kDeregFlags, kDeregFlagInvalidate);
    store(params, kDeregCompletion, &completion);
    const auto deregister = [&](const OpenMd &md, uint64_t mask) {
        store(params, 0, mask);
        return uct_.md_mem_dereg_v2(md.get(), params);
    };
    EXPECT_EQ(deregister(keyed, kDeregFieldMemh | kDeregFieldFlags), UCS_ERR_INVALID_PARAM)
        << "nobody to tell";
    EXPECT_EQ(deregister(keyed, kDeregFieldFlags | kDeregFieldCompletion), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(deregister(keyed, kDeregFieldCompletion), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(deregister(copy, kDeregFieldMemh | kDeregFieldFlags | kDeregFieldCompletion),
              UCS_ERR_UNSUPPORTED)
        << "a domain that cannot";
    EXPECT_EQ(told().deregistrations, 0);
    EXPECT_EQ(completion.count, 1);
    EXPECT_EQ(deregister(keyed, kDeregFieldMemh | kDeregFieldFlags | kDeregFieldCompletion),
              UCS_OK);
}

TEST_F(AbiMd, memory_query_writes_what_was_asked) {
    const OpenMd md{component_, "copy"};
    struct {
        uct_md_mem_attr_t attributes;
        unsigned char spare[64];  // newer versions have a longer struct
    } answer;
    std::memset(&answer, 0xa5, sizeof(answer));
    answer.attributes.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE | UCT_MD_MEM_ATTR_FIELD_SYS_DEV |
                                   UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS;
    ASSERT_EQ(uct_.md_mem_query(md.get(), gpu_memory() + 10, 20, &answer.attributes), UCS_OK);
    EXPECT_EQ(answer.attributes.mem_type, UCS_MEMORY_TYPE_CUDA_MANAGED);
    EXPECT_EQ(answer.attributes.sys_dev, kSystemDevice);
    EXPECT_EQ(answer.attributes.base_address, gpu_memory());
    EXPECT_EQ(answer.attributes.alloc_length, 0xa5a5a5a5a5a5a5a5u) << "not asked for";
    answer.attributes.field_mask = UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH;
    ASSERT_EQ(uct_.md_mem_query(md.get(), gpu_memory(), 1, &answer.attributes), UCS_OK);
    EXPECT_EQ(answer.attributes.alloc_length, kGpuSize);
}

TEST_F(AbiMd, memory_query_of_newer_versions_has_no_dmabuf) {
    using F = MemAttrField;
    const StructLayout<F> &fields = ucx_.layout->mem_attr;
    const bool v2 = ucx_.symbol("uct_md_mem_query_v2") != nullptr;
    if (!fields.has(F::dmabuf_fd)) {
        GTEST_SKIP() << "this UCX does not ask for it";
    }
    const auto query = reinterpret_cast<ucs_status_t (*)(uct_md_h, const void *, size_t, void *)>(
        ucx_.symbol(v2 ? "uct_md_mem_query_v2" : "uct_md_mem_query"));
    const OpenMd md{component_, "copy"};
    Canvas canvas{fields.size()};
    canvas.set(0, fields.mask_bit(F::dmabuf_fd) | fields.mask_bit(F::dmabuf_offset) |
                      fields.mask_bit(F::mem_flags));
    ASSERT_EQ(query(md.get(), gpu_memory(), 1, canvas.data()), UCS_OK);
    EXPECT_EQ(canvas.get<int>(fields[F::dmabuf_fd]), -1);
    EXPECT_EQ(canvas.get<size_t>(fields[F::dmabuf_offset]), 0u);
    if (fields.has(F::mem_flags)) {
        EXPECT_EQ(canvas.get<uint8_t>(fields[F::mem_flags]), 1u);
    }
    EXPECT_TRUE(canvas.is_tail_untouched());
}

TEST_F(AbiMd, foreign_memory_is_not_claimed) {
    const OpenMd md{component_, "copy"};
    char host = 0;
    uct_md_mem_attr_t attributes{};
    attributes.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
    EXPECT_EQ(uct_.md_mem_query(md.get(), &host, 1, &attributes), UCS_ERR_INVALID_ADDR);
    ucs_memory_type_t type = UCS_MEMORY_TYPE_LAST;
    EXPECT_EQ(uct_.md_detect_memory_type(md.get(), &host, 1, &type), UCS_ERR_INVALID_ADDR);
    ASSERT_EQ(uct_.md_detect_memory_type(md.get(), gpu_memory(), 1, &type), UCS_OK);
    EXPECT_EQ(type, UCS_MEMORY_TYPE_CUDA_MANAGED);
}

TEST_F(AbiMd, allocation_passes_through) {
    const OpenMd md{component_, "copy"};
    const uct_md_h handle = md.get();
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                        UCT_MEM_ALLOC_PARAM_FIELD_MDS | UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags = UCT_MD_MEM_ACCESS_ALL;
    params.mem_type = UCS_MEMORY_TYPE_CUDA;
    params.mds.mds = &handle;
    params.mds.count = 1;
    params.name = "test";
    struct {
        uct_allocated_memory_t memory;
        unsigned char spare[16];  // the struct grew in 1.19
    } allocated{};
    ASSERT_EQ(uct_.mem_alloc(kGpuSize, &method, 1, &params, &allocated.memory), UCS_OK);
    EXPECT_EQ(told().alloc_type, UCS_MEMORY_TYPE_CUDA);
    EXPECT_EQ(allocated.memory.address, gpu_memory());
    EXPECT_EQ(allocated.memory.length, kGpuSize);
    EXPECT_EQ(uct_.mem_free(&allocated.memory), UCS_OK);
    EXPECT_EQ(told().frees, 1);
}

class AbiKey : public AbiMd {
protected:
    /** Packs a key of the domain, and checks that no byte behind it is written. */
    void pack(uct_md_h md, Canvas &key) {
        char buffer[100];
        uct_mem_h memh = nullptr;
        ASSERT_EQ(uct_.md_mem_reg(md, buffer, sizeof(buffer), UCT_MD_MEM_ACCESS_ALL, &memh),
                  UCS_OK);
        ASSERT_EQ(uct_.md_mkey_pack(md, memh, key.data()), UCS_OK);
        EXPECT_TRUE(key.is_tail_untouched());
        EXPECT_EQ(uct_.md_mem_dereg(md, memh), UCS_OK);
    }
};

TEST_F(AbiKey, key_is_unpacked_as_it_was_packed) {
    const OpenMd md{component_, "keyed"};
    Canvas key{kKeySize + 1};
    pack(md.get(), key);
    uct_rkey_bundle_t bundle{};
    ASSERT_EQ(uct_.rkey_unpack(component_, key.data(), &bundle), UCS_OK);
    EXPECT_TRUE(told().key_was_right);
    EXPECT_EQ(bundle.rkey, kRkey);
    EXPECT_EQ(uct_.rkey_release(component_, &bundle), UCS_OK);
    EXPECT_EQ(told().released_rkey, kRkey);
}

/** UCP packs a key for each rendezvous, so that must not query the domain's attributes, which reads
 * the environment. */
TEST_F(AbiKey, packing_asks_for_no_attributes) {
    const OpenMd md{component_, "keyed"};
    Canvas key{kKeySize + 1};
    const int queries = told().domain_queries;
    pack(md.get(), key);
    EXPECT_EQ(told().domain_queries, queries);
}

TEST_F(AbiKey, domain_without_keys_packs_a_mark_that_unpacks_to_none) {
    const OpenMd md{component_, "copy"};
    Canvas key{1};
    pack(md.get(), key);
    uct_rkey_bundle_t bundle{};
    ASSERT_EQ(uct_.rkey_unpack(component_, key.data(), &bundle), UCS_OK);
    EXPECT_EQ(told().keys_unpacked, 0);
    EXPECT_EQ(bundle.rkey, UCT_INVALID_RKEY);
    EXPECT_EQ(uct_.rkey_release(component_, &bundle), UCS_OK);
    EXPECT_EQ(told().released_rkey, 0u);
}

}  // namespace
}  // namespace abi_test
