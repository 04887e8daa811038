// SPDX-License-Identifier: BSD-3-Clause
// What kernels of ours surely reach: kernels_reach() (core/copy/reachability.hpp).
#include "core/copy/copy_engine.hpp"
#include "core/copy/reachability.hpp"

#include "test/gtest/core/gpu_support.hpp"

namespace gpushm::test {
namespace {

constexpr size_t kUnit = 2u << 20;  // granularity of virtual memory management

class Reach : public GpuTest {
protected:
    bool reached(const unsigned char *address, size_t length, CUdevice device = 0) const {
        return kernels_reach(query_memory(address), address, length, device, context_);
    }
    /** As a thread sees it that never had a context current. */
    bool reached_without_context(const unsigned char *address, size_t length) const {
        CUcontext popped = nullptr;
        cuda_.ctx_pop_current(&popped);
        const bool is = reached(address, length);
        EXPECT_EQ(current_context(), nullptr);
        cuda_.ctx_push_current(popped);
        return is;
    }
    /** cuMemAllocAsync and cuMemFreeAsync; what is freed is gone afterwards. */
    static CUdeviceptr allocate_of_pool(size_t length) {
        const auto allocate =
            cuda_function<CUresult (*)(CUdeviceptr *, size_t, CUstream)>("cuMemAllocAsync");
        CUdeviceptr pooled = 0;
        EXPECT_EQ(allocate(&pooled, length, nullptr), CUDA_SUCCESS);
        return pooled;
    }
    void free_of_pool(CUdeviceptr pooled) const {
        EXPECT_EQ(
            cuda_function<CUresult (*)(CUdeviceptr, CUstream)>("cuMemFreeAsync")(pooled, nullptr),
            CUDA_SUCCESS);
        EXPECT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
    }
};

TEST_F(Reach, MemoryOfCuMemAlloc) {
    const Buffer memory(MemoryKind::device, 4096);
    EXPECT_TRUE(reached(memory.data(), 4096));
    EXPECT_TRUE(reached_without_context(memory.data() + 100, 3996));
    EXPECT_FALSE(reached(memory.data() + 100, 3997)) << "beyond its end";
    EXPECT_FALSE(reached(memory.data(), 4096, 1)) << "from another GPU";
}

/** Which may access it by cuCtxEnablePeerAccess only, as the manual has it. */
TEST_F(Reach, NotMemoryOfAnotherContextOfTheGpu) {
    CUcontext other = make_context();
    ASSERT_EQ(cuda_.ctx_push_current(other), CUDA_SUCCESS);
    Buffer there(MemoryKind::device, 4096);
    cuda_.ctx_pop_current(&other);
    const Buffer here(MemoryKind::device, 4096);
    EXPECT_FALSE(reached(there.data(), 4096));
    EXPECT_TRUE(kernels_reach(query_memory(there.data()), there.data(), 4096, 0, other));
    EXPECT_FALSE(kernels_reach(query_memory(here.data()), here.data(), 4096, 0, other));
    there.forget();
    destroy_context(other);
}

TEST_F(Reach, NotHostNorManagedMemory) {
    const Buffer host(MemoryKind::host, 4096);
    const Buffer managed(MemoryKind::managed, 4096);
    EXPECT_FALSE(reached(host.data(), 4096));
    EXPECT_FALSE(reached(managed.data(), 4096));
}

TEST_F(Reach, MemoryOfAPool) {
    const CUdeviceptr pooled = allocate_of_pool(4096);
    ASSERT_NE(pooled, 0u);
    const auto *address = reinterpret_cast<unsigned char *>(pooled);
    EXPECT_TRUE(reached(address, 4096));
    EXPECT_TRUE(reached_without_context(address + 1, 4095));
    EXPECT_FALSE(reached(address + 1, 4096)) << "beyond its end";
    EXPECT_FALSE(reached(address, 4096, 1)) << "from another GPU";
    const MemoryInfo before = query_memory(address);
    free_of_pool(pooled);
    EXPECT_FALSE(kernels_reach(before, address, 4096, 0, context_)) << "freed";
}

TEST_F(Reach, WhatIsMappedForReadingAndWriting) {
    if (!Buffer::has_exportable()) {
        GTEST_SKIP() << "no cuMemCreate";
    }
    const Buffer memory(Buffer::Allocator::exportable, kUnit);
    EXPECT_TRUE(reached(memory.data(), kUnit));
    EXPECT_TRUE(reached_without_context(memory.data(), kUnit));
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    ASSERT_EQ(cuda_.mem_set_access(reinterpret_cast<CUdeviceptr>(memory.data()), kUnit, &access, 1),
              CUDA_SUCCESS);
    EXPECT_FALSE(reached(memory.data(), kUnit)) << "which may only be read";
}

TEST_F(Reach, NotWhatTakesLongToAskFor) {
    const CUdeviceptr pooled = allocate_of_pool(200 * kUnit);
    ASSERT_NE(pooled, 0u);
    const auto *address = reinterpret_cast<unsigned char *>(pooled);
    EXPECT_TRUE(reached(address, 64 * kUnit));
    if (simulated()) {
        reset_calls();
    }
    EXPECT_FALSE(reached(address, 200 * kUnit));
    if (simulated()) {
        EXPECT_EQ(calls("cuPointerGetAttributes"), 1u) << "for its kind";
    }
    free_of_pool(pooled);
}

// The driver tells the reserved range, in which there may be holes.
TEST_F(Reach, NoHoleBetweenMappings) {
    if (!Buffer::has_exportable()) {
        GTEST_SKIP() << "no cuMemCreate";
    }
    constexpr size_t kUnits = 4;
    CUdeviceptr base = 0;
    ASSERT_EQ(cuda_.mem_address_reserve(&base, kUnits * kUnit, 0, 0, 0), CUDA_SUCCESS);
    const auto create =
        cuda_function<CUresult (*)(CUmemGenericAllocationHandle *, size_t,
                                   const CUmemAllocationProp *, unsigned long long)>("cuMemCreate");
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    constexpr size_t kMapped[] = {0, 1, 3};
    for (const size_t unit : kMapped) {
        CUmemGenericAllocationHandle handle = 0;
        ASSERT_EQ(create(&handle, kUnit, &properties, 0), CUDA_SUCCESS);
        ASSERT_EQ(cuda_.mem_map(base + unit * kUnit, kUnit, 0, handle, 0), CUDA_SUCCESS);
        ASSERT_EQ(cuda_.mem_set_access(base + unit * kUnit, kUnit, &access, 1), CUDA_SUCCESS);
        ASSERT_EQ(cuda_.mem_release(handle), CUDA_SUCCESS);
    }
    const auto *begin = reinterpret_cast<unsigned char *>(base);
    EXPECT_TRUE(reached(begin, 2 * kUnit));
    EXPECT_TRUE(reached(begin + kUnit - 8, 16));
    EXPECT_FALSE(reached(begin + 2 * kUnit - 8, 16));
    EXPECT_FALSE(reached(begin, kUnits * kUnit));
    EXPECT_FALSE(reached(begin + kUnit + 8, 2 * kUnit)) << "a hole in the middle";
    EXPECT_FALSE(reached(begin + 3 * kUnit + 8, kUnit)) << "beyond what is reserved";
    for (const size_t unit : kMapped) {
        EXPECT_EQ(cuda_.mem_unmap(base + unit * kUnit, kUnit), CUDA_SUCCESS);
    }
    EXPECT_EQ(
        cuda_function<CUresult (*)(CUdeviceptr, size_t)>("cuMemAddressFree")(base, kUnits * kUnit),
        CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushm::test
