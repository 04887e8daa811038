// SPDX-License-Identifier: BSD-3-Clause
// What the driver tells about a pointer, for each kind of memory.
#include "test_support.hpp"

#include <cstdlib>
#include <memory>
#include <set>

namespace {

using PointerTest = DriverTest;

constexpr std::size_t kBytes = 4 << 20;

using HostMemory = std::unique_ptr<void, decltype(&std::free)>;

HostMemory host_memory() {
    return HostMemory(std::aligned_alloc(4096, kBytes), std::free);
}

template <typename Value>
Value attribute(CUpointer_attribute name, CUdeviceptr address) {
    Value value{};
    EXPECT_CU(cu().cuPointerGetAttribute(&value, name, address)) << "attribute " << name;
    return value;
}

template <typename Value>
CUresult attribute_error(CUpointer_attribute name, CUdeviceptr address) {
    Value value{};
    return cu().cuPointerGetAttribute(&value, name, address);
}

unsigned long long buffer_id(CUdeviceptr address) {
    return attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
}

// What one call of cuPointerGetAttributes tells.
struct Description {
    unsigned memory_type = 77;
    unsigned is_managed = 77;
    int device = 77;
    CUcontext context = reinterpret_cast<CUcontext>(77);
    unsigned long long buffer_id = 77;

    static Description of(CUdeviceptr address) {
        Description found;
        CUpointer_attribute names[] = {
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_BUFFER_ID};
        void *values[] = {&found.memory_type, &found.is_managed, &found.device, &found.context,
                          &found.buffer_id};
        EXPECT_CU(cu().cuPointerGetAttributes(5, names, values, address));
        return found;
    }
};

TEST_F(PointerTest, device_memory_is_described) {
    DeviceMemory memory(kBytes);
    for (CUdeviceptr address : {memory.address(), memory.address() + kBytes - 1}) {
        const Description found = Description::of(address);
        EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), found.memory_type);
        EXPECT_EQ(0u, found.is_managed);
        EXPECT_EQ(0, found.device);
        EXPECT_EQ(context_, found.context);
        EXPECT_NE(0u, found.buffer_id);
    }
    const CUdeviceptr inside = memory.address() + 1000;
    EXPECT_EQ(memory.address(),
              attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    EXPECT_EQ(kBytes, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    EXPECT_EQ(1, attribute<int>(CU_POINTER_ATTRIBUTE_MAPPED, inside));
    EXPECT_EQ(inside, attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    EXPECT_EQ(1, attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
    EXPECT_EQ(nullptr, attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside));
    EXPECT_EQ(0u, attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              attribute_error<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
}

TEST_F(PointerTest, the_device_is_that_of_the_allocating_context) {
    const int last = device_count() - 1;
    CUcontext context = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&context, last));
    ASSERT_CU(cu().cuCtxPushCurrent(context));
    {
        DeviceMemory memory(kBytes);
        EXPECT_CU(cu().cuCtxSetCurrent(context_));  // asked from another context
        const Description found = Description::of(memory.address());
        EXPECT_EQ(last, found.device);
        EXPECT_EQ(context, found.context);
        EXPECT_CU(cu().cuCtxSetCurrent(context));
    }
    EXPECT_CU(cu().cuCtxPopCurrent(nullptr));
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(last));
}

TEST_F(PointerTest, managed_memory_is_described) {
    ManagedMemory memory(kBytes);
    memory.data()[0] = 1;
    const Description found = Description::of(memory.address() + 17);
    EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), found.memory_type);
    EXPECT_EQ(1u, found.is_managed);
    EXPECT_EQ(0, found.device);
    EXPECT_EQ(context_, found.context);
    EXPECT_NE(0u, found.buffer_id);
    EXPECT_EQ(0, attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory.address()));
    EXPECT_EQ(memory.data(),
              attribute<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, memory.address()));
}

TEST_F(PointerTest, pinned_memory_is_described) {
    PinnedMemory memory(kBytes);
    const Description found = Description::of(memory.address() + 17);
    EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_HOST), found.memory_type);
    EXPECT_EQ(0u, found.is_managed);
    EXPECT_EQ(0, found.device);
    EXPECT_EQ(context_, found.context);
    EXPECT_NE(0u, found.buffer_id);
    EXPECT_EQ(memory.data(),
              attribute<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, memory.address()));
    EXPECT_EQ(memory.address(),
              attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory.address()));
}

TEST_F(PointerTest, registered_memory_is_described_while_it_is_registered) {
    const HostMemory memory = host_memory();
    const CUdeviceptr address = address_of(memory.get());
    ASSERT_CU(cu().cuMemHostRegister(memory.get(), kBytes, CU_MEMHOSTREGISTER_PORTABLE));
    const Description found = Description::of(address + 17);
    EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_HOST), found.memory_type);
    EXPECT_EQ(0u, found.is_managed);
    EXPECT_EQ(context_, found.context);
    EXPECT_NE(0u, found.buffer_id);
    EXPECT_CU(cu().cuMemHostUnregister(memory.get()));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              attribute_error<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
}

TEST_F(PointerTest, plain_memory_is_unknown) {
    const HostMemory memory = host_memory();
    const CUdeviceptr address = address_of(memory.get());
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              attribute_error<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              attribute_error<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    const Description found = Description::of(address);
    EXPECT_EQ(0u, found.memory_type);
    EXPECT_EQ(0u, found.is_managed);
    EXPECT_EQ(CU_DEVICE_INVALID, found.device);
    EXPECT_EQ(nullptr, found.context);
    EXPECT_EQ(0u, found.buffer_id);
}

TEST_F(PointerTest, freed_memory_is_unknown) {
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemAlloc(&address, kBytes));
    ASSERT_CU(cu().cuMemFree(address));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              attribute_error<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    EXPECT_EQ(0u, Description::of(address).memory_type);
}

TEST_F(PointerTest, pool_memory_belongs_to_a_pool_and_to_no_context) {
    Stream stream;
    CUmemoryPool pool = nullptr;
    ASSERT_CU(cu().cuDeviceGetDefaultMemPool(&pool, 0));
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemAllocAsync(&address, kBytes, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    const Description found = Description::of(address);
    EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE), found.memory_type);
    EXPECT_EQ(0u, found.is_managed);
    EXPECT_EQ(0, found.device);
    EXPECT_EQ(nullptr, found.context);
    EXPECT_EQ(0, attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    EXPECT_EQ(pool, attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    EXPECT_EQ(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE,
              attribute<int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
    EXPECT_CU(cu().cuMemFreeAsync(address, stream));
}

TEST_F(PointerTest, buffer_ids_are_never_used_again) {
    std::set<unsigned long long> ids;
    constexpr std::size_t kRounds = 20;
    for (std::size_t round = 0; round < kRounds; ++round) {
        DeviceMemory memory(kBytes);
        ids.insert(buffer_id(memory.address()));
        EXPECT_EQ(buffer_id(memory.address()), buffer_id(memory.address() + kBytes - 1));
    }
    EXPECT_EQ(kRounds, ids.size());
}

TEST_F(PointerTest, registering_again_gives_another_buffer_id) {
    const HostMemory memory = host_memory();
    ASSERT_CU(cu().cuMemHostRegister(memory.get(), kBytes, CU_MEMHOSTREGISTER_PORTABLE));
    const auto first = buffer_id(address_of(memory.get()));
    ASSERT_CU(cu().cuMemHostUnregister(memory.get()));
    ASSERT_CU(cu().cuMemHostRegister(memory.get(), kBytes, CU_MEMHOSTREGISTER_PORTABLE));
    EXPECT_NE(first, buffer_id(address_of(memory.get())));
    EXPECT_CU(cu().cuMemHostUnregister(memory.get()));
}

TEST_F(PointerTest, pointers_are_described_without_a_context) {
    DeviceMemory memory(kBytes);
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE),
              Description::of(memory.address()).memory_type);
    EXPECT_NE(0u, buffer_id(memory.address()));
    ASSERT_CU(cu().cuCtxSetCurrent(context_));
}

TEST_F(PointerTest, SYNC_MEMOPS_can_be_set_and_read) {
    DeviceMemory memory(kBytes);
    EXPECT_EQ(0u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address()));
    unsigned on = 1;
    EXPECT_CU(cu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address()));
    EXPECT_EQ(1u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address() + 100));
    int on_stack = 0;
    EXPECT_EQ(
        CUDA_ERROR_INVALID_VALUE,
        cu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address_of(&on_stack)));
}

}  // namespace
