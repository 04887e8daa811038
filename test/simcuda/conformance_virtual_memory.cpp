// SPDX-License-Identifier: BSD-3-Clause
// Virtual memory management: physical memory, the addresses where it is mapped, and descriptors by
// which another process gets it.
#include "child_process.hpp"
#include "virtual_memory.hpp"

#include <csignal>
#include <fcntl.h>
#include <unistd.h>

namespace {

using VirtualMemoryTest = DriverTest;

template <typename Value>
Value attribute(CUpointer_attribute name, CUdeviceptr address) {
    Value value{};
    EXPECT_CU(cu().cuPointerGetAttribute(&value, name, address)) << "attribute " << name;
    return value;
}

Bytes read(CUdeviceptr address, std::size_t bytes) {
    Bytes found(bytes);
    EXPECT_CU(cu().cuMemcpyDtoH(found.data(), address, bytes));
    return found;
}

std::size_t free_memory() {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    EXPECT_CU(cu().cuMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
}

// The bytes that a process writes who was told `seed`.
Bytes pattern(std::size_t bytes, unsigned seed) {
    Bytes content(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        content[i] = static_cast<unsigned char>(((seed + i) * 2654435761u) >> 13);
    }
    return content;
}

int touch_mapped_memory(const Arguments &) {
    CUcontext context = nullptr;
    CHILD_CHECK(start_cuda(0, &context));
    VirtualMemory memory(granularity());
    memory.add(granularity());
    *reinterpret_cast<volatile unsigned char *>(memory.address()) = 1;
    return 0;
}
const ChildStepRegistration kTouchMappedMemory("touch mapped memory", touch_mapped_memory);

// Gets a descriptor, finds pattern 1 behind it, writes pattern 2, and finds that again when the
// owner has let go of the memory.
int use_imported_memory(const Arguments &) {
    CUcontext context = nullptr;
    CHILD_CHECK(start_cuda(0, &context));
    const std::size_t bytes = granularity();
    const int file = receive_file(parent_socket());
    CUmemGenericAllocationHandle handle = 0;
    CHILD_CHECK(file >= 0 && import_memory(&handle, file) == CUDA_SUCCESS);
    close(file);
    CUmemAllocationProp properties{};
    CHILD_CHECK(cu().cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS);
    CHILD_CHECK(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    VirtualMemory memory(bytes);
    memory.add(bytes, handle);
    CHILD_CHECK(read(memory.address(), bytes) == pattern(bytes, 1));
    const Bytes answer = pattern(bytes, 2);
    CHILD_CHECK(cu().cuMemcpyHtoD(memory.address(), answer.data(), bytes) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHILD_CHECK(release_peer(parent_socket()) && wait_for_peer(parent_socket()));
    CHILD_CHECK(read(memory.address(), bytes) == answer);
    return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}
const ChildStepRegistration kUseImported("use imported memory", use_imported_memory);

TEST_F(VirtualMemoryTest, mapped_memory_keeps_what_is_written) {
    const std::size_t bytes = granularity();
    VirtualMemory memory(bytes);
    memory.add(bytes);
    const Bytes data = fresh_bytes(bytes);
    ASSERT_CU(cu().cuMemcpyHtoD(memory.address(), data.data(), bytes));
    EXPECT_EQ(data, read(memory.address(), bytes));
}

TEST_F(VirtualMemoryTest, the_cpu_faults_when_it_touches_mapped_memory) {
    const ChildResult result = run_child("touch mapped memory");
    EXPECT_TRUE(result.signal == SIGSEGV || result.signal == SIGBUS);
}

TEST_F(VirtualMemoryTest, handles_mapped_side_by_side_are_one_buffer) {
    const std::size_t unit = granularity();
    VirtualMemory memory(4 * unit);
    memory.add(unit);
    memory.add(2 * unit);
    memory.add(unit);
    const Bytes data = fresh_bytes(3 * unit);
    ASSERT_CU(cu().cuMemcpyHtoD(memory.address() + unit / 2, data.data(), data.size()));
    EXPECT_EQ(data, read(memory.address() + unit / 2, data.size()));
    DeviceMemory copied(data.size());
    ASSERT_CU(cu().cuMemcpyDtoD(copied.address(), memory.address() + unit / 2, data.size()));
    EXPECT_EQ(data, copied.read());
}

TEST_F(VirtualMemoryTest, mapped_memory_is_described) {
    const std::size_t unit = granularity();
    VirtualMemory memory(4 * unit);
    memory.add(unit, true);
    memory.add(2 * unit, false);
    const CUdeviceptr first = memory.address() + 100;
    const CUdeviceptr second = memory.address() + 2 * unit;
    for (CUdeviceptr inside : {first, second}) {
        EXPECT_EQ(static_cast<unsigned>(CU_MEMORYTYPE_DEVICE),
                  attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
        EXPECT_EQ(nullptr, attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside));
        EXPECT_EQ(0u, attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
        EXPECT_EQ(0, attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
        EXPECT_EQ(0, attribute<int>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
        EXPECT_EQ(1, attribute<int>(CU_POINTER_ATTRIBUTE_MAPPED, inside));
        EXPECT_NE(0u, attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside));
        EXPECT_EQ(memory.address(),
                  attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
        EXPECT_EQ(4 * unit, attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    }
    EXPECT_EQ(std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
              attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, first));
    EXPECT_EQ(std::uint64_t{CU_MEM_HANDLE_TYPE_NONE},
              attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, second));
}

TEST_F(VirtualMemoryTest, GetAddressRange_tells_one_mapping) {
    const std::size_t unit = granularity();
    VirtualMemory memory(4 * unit);
    memory.add(unit);
    memory.add(2 * unit);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    ASSERT_CU(cu().cuMemGetAddressRange(&base, &bytes, memory.address() + 2 * unit));
    EXPECT_EQ(memory.address() + unit, base);
    EXPECT_EQ(2 * unit, bytes);
}

TEST_F(VirtualMemoryTest, reserved_addresses_are_not_mapped) {
    const std::size_t unit = granularity();
    VirtualMemory memory(2 * unit);
    memory.add(unit);
    int mapped = 77;
    void *value = &mapped;
    CUpointer_attribute name = CU_POINTER_ATTRIBUTE_MAPPED;
    EXPECT_CU(cu().cuPointerGetAttributes(1, &name, &value, memory.address() + unit));
    EXPECT_EQ(0, mapped);
}

TEST_F(VirtualMemoryTest, mapping_again_at_an_address_gives_another_buffer_id) {
    const std::size_t unit = granularity();
    VirtualMemory memory(unit);
    memory.add(unit);
    const auto first =
        attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory.address());
    memory.unmap_all();
    memory.add(unit);
    EXPECT_NE(first,
              attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, memory.address()));
}

TEST_F(VirtualMemoryTest, a_handle_is_found_by_an_address) {
    const std::size_t unit = granularity();
    const CUmemGenericAllocationHandle handle = create_memory(unit, true);
    VirtualMemory memory(unit);
    memory.add(unit, handle);
    CUmemGenericAllocationHandle found = 0;
    ASSERT_CU(cu().cuMemRetainAllocationHandle(
        &found, reinterpret_cast<void *>(memory.address() + unit - 1)));
    EXPECT_EQ(handle, found) << "the manual promises the same value";
    CUmemAllocationProp properties{};
    EXPECT_CU(cu().cuMemGetAllocationPropertiesFromHandle(&properties, found));
    EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE, properties.location.type);
    EXPECT_EQ(0, properties.location.id);
    EXPECT_EQ(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, properties.requestedHandleTypes);
    EXPECT_CU(cu().cuMemRelease(found));
    DeviceMemory other(8);
    EXPECT_NE(CUDA_SUCCESS,
              cu().cuMemRetainAllocationHandle(&found, reinterpret_cast<void *>(other.address())));
}

TEST_F(VirtualMemoryTest, access_is_what_was_set) {
    const std::size_t unit = granularity();
    VirtualMemory memory(unit);
    memory.add(unit);
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    unsigned long long flags = 77;
    EXPECT_CU(cu().cuMemGetAccess(&flags, &location, memory.address()));
    EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), flags);
}

TEST_F(VirtualMemoryTest, the_access_flags_of_an_address_are_those_of_its_mapping) {
    const std::size_t unit = granularity();
    VirtualMemory memory(3 * unit);
    memory.add(unit);
    memory.add(unit);
    const auto flags_at = [&](std::size_t offset) {
        int flags = 77;
        void *value = &flags;
        CUpointer_attribute name = CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
        EXPECT_CU(cu().cuPointerGetAttributes(1, &name, &value, memory.address() + offset));
        return flags;
    };
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    ASSERT_CU(cu().cuMemSetAccess(memory.address() + unit, unit, &access, 1));
    EXPECT_EQ(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, flags_at(0));
    EXPECT_EQ(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, flags_at(unit - 1));
    EXPECT_EQ(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ, flags_at(unit));
    EXPECT_EQ(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE, flags_at(2 * unit));  // nothing is mapped
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_EQ(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE, flags_at(0));
    ASSERT_CU(cu().cuCtxSetCurrent(context_));
}

TEST_F(VirtualMemoryTest, memory_is_used_until_it_is_unmapped_and_its_handle_is_released) {
    constexpr std::size_t kBytes = 64 << 20;
    VirtualMemory memory(kBytes);
    const std::size_t before = free_memory();
    memory.add(kBytes);  // releases the handle
    EXPECT_LE(free_memory() + kBytes, before);
    memory.unmap_all();
    EXPECT_GE(free_memory(), before);
}

TEST_F(VirtualMemoryTest, two_processes_share_memory_by_a_descriptor) {
    const std::size_t bytes = granularity();
    const CUmemGenericAllocationHandle handle = create_memory(bytes, true);
    int file = -1;
    ASSERT_CU(export_memory(&file, handle));
    VirtualMemory memory(bytes);
    memory.add(bytes, handle);
    const Bytes data = pattern(bytes, 1);
    ASSERT_CU(cu().cuMemcpyHtoD(memory.address(), data.data(), bytes));
    ASSERT_CU(cu().cuCtxSynchronize());
    ChildProcess child("use imported memory");
    ASSERT_TRUE(send_file(child.socket(), file));
    close(file);
    ASSERT_TRUE(wait_for_peer(child.socket()));
    EXPECT_EQ(pattern(bytes, 2), read(memory.address(), bytes));
    memory.unmap_all();
    ASSERT_TRUE(release_peer(child.socket()));
    EXPECT_EQ(0, child.wait().exit_status);
}

TEST_F(VirtualMemoryTest, a_process_can_import_its_own_memory) {
    const std::size_t bytes = granularity();
    const CUmemGenericAllocationHandle handle = create_memory(bytes, true);
    int file = -1;
    ASSERT_CU(export_memory(&file, handle));
    CUmemGenericAllocationHandle imported = 0;
    ASSERT_CU(import_memory(&imported, file));
    close(file);
    VirtualMemory one(bytes);
    VirtualMemory other(bytes);
    one.add(bytes, handle);
    other.add(bytes, imported);
    const Bytes data = fresh_bytes(bytes);
    ASSERT_CU(cu().cuMemcpyHtoD(one.address(), data.data(), bytes));
    ASSERT_CU(cu().cuCtxSynchronize());
    EXPECT_EQ(data, read(other.address(), bytes));
}

TEST_F(VirtualMemoryTest, only_memory_made_for_it_can_be_exported) {
    const CUmemGenericAllocationHandle handle = create_memory(granularity(), false);
    int file = -1;
    EXPECT_NE(CUDA_SUCCESS, export_memory(&file, handle));
    EXPECT_CU(cu().cuMemRelease(handle));
}

TEST_F(VirtualMemoryTest, a_descriptor_of_something_else_cannot_be_imported) {
    CUmemGenericAllocationHandle handle = 0;
    const int file = open("/dev/null", O_RDWR);
    EXPECT_NE(CUDA_SUCCESS, import_memory(&handle, file));
    close(file);
}

TEST_F(VirtualMemoryTest, sizes_must_be_multiples_of_the_granularity) {
    const std::size_t unit = granularity();
    EXPECT_EQ(0u, unit & (unit - 1));
    const CUmemAllocationProp properties = device_properties(0, false);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, 4096, &properties, 0));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, unit + 4096, &properties, 0));
    const CUmemAllocationProp nowhere = device_properties(device_count(), false);
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cu().cuMemCreate(&handle, unit, &nowhere, 0));
}

TEST_F(VirtualMemoryTest, only_whole_mappings_are_unmapped) {
    const std::size_t unit = granularity();
    VirtualMemory memory(2 * unit);
    memory.add(2 * unit);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemUnmap(memory.address(), unit));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemUnmap(memory.address() + unit, unit));
}

TEST_F(VirtualMemoryTest, addresses_are_mapped_once_and_only_where_they_are_reserved) {
    const std::size_t unit = granularity();
    VirtualMemory memory(unit);
    memory.add(unit);
    const CUmemGenericAllocationHandle handle = create_memory(unit, false);
    EXPECT_NE(CUDA_SUCCESS, cu().cuMemMap(memory.address(), unit, 0, handle, 0));
    EXPECT_NE(CUDA_SUCCESS, cu().cuMemMap(memory.address() + unit, unit, 0, handle, 0));
    EXPECT_CU(cu().cuMemRelease(handle));
}

TEST_F(VirtualMemoryTest, mapped_memory_is_not_that_of_cuMemAlloc) {
    const std::size_t unit = granularity();
    VirtualMemory memory(unit);
    memory.add(unit, true);
    EXPECT_NE(CUDA_SUCCESS, cu().cuMemFree(memory.address()));
    CUipcMemHandle handle;
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, memory.address()));
    unsigned on = 1;
    EXPECT_NE(CUDA_SUCCESS,
              cu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address()));
}

}  // namespace
