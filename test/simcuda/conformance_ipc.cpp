// SPDX-License-Identifier: BSD-3-Clause
// Device memory that two processes share.
#include "child_process.hpp"
#include "test_support.hpp"

#include <sys/socket.h>

#include <csignal>

namespace {

using IpcTest = DriverTest;

constexpr std::size_t kBytes = 4 << 20;

// The bytes that a process writes who was told `seed`.
Bytes pattern(unsigned seed) {
    Bytes bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) {
        bytes[i] = static_cast<unsigned char>(((seed + i) * 2654435761u) >> 13);
    }
    return bytes;
}

// Arguments: the handle, the seed of what is there, the seed of what to write.
int exchange(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    Bytes found(kBytes);
    CHILD_CHECK(cu().cuMemcpyDtoH(found.data(), address, kBytes) == CUDA_SUCCESS);
    CHILD_CHECK(found == pattern(static_cast<unsigned>(std::stoul(arguments.at(1)))));
    const Bytes answer = pattern(static_cast<unsigned>(std::stoul(arguments.at(2))));
    CHILD_CHECK(cu().cuMemcpyHtoD(address, answer.data(), kBytes) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuCtxSynchronize() == CUDA_SUCCESS);

    unsigned type = 0;
    CHILD_CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 5) ==
                CUDA_SUCCESS);
    CHILD_CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHILD_CHECK(cu().cuMemFree(address) != CUDA_SUCCESS);

    CUdeviceptr again = 0;
    CHILD_CHECK(open_handle(&again, arguments.at(0)) == CUDA_SUCCESS);
    CHILD_CHECK(again == address);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemcpyDtoH(found.data(), address, kBytes) == CUDA_SUCCESS);
    CHILD_CHECK(found == answer);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
                CUDA_ERROR_INVALID_VALUE);
    return 0;
}
const ChildStepRegistration kExchange("exchange through IPC", exchange);

// Argument: the handle of memory that is freed later. The handle of the memory which takes its
// place comes from the parent.
int open_what_took_its_place(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CUdeviceptr later = 0;
    CUipcMemHandle handle;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    CHILD_CHECK(release_peer(parent_socket()));
    CHILD_CHECK(recv(parent_socket(), &handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
    CHILD_CHECK(open_handle(&later, to_text(handle)) == CUDA_ERROR_ALREADY_MAPPED);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    CHILD_CHECK(open_handle(&later, to_text(handle)) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(later) == CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kOpenWhatTookItsPlace("open what took its place",
                                                  open_what_took_its_place);

// Argument: the handle.
int fail_to_open(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) != CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kFailToOpen("fail to open", fail_to_open);

// Arguments: the handle, the seed of what is there.
int read_after_owner_freed(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    Bytes found(kBytes);
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    CHILD_CHECK(release_peer(parent_socket()) && wait_for_peer(parent_socket()));
    CHILD_CHECK(cu().cuMemcpyDtoH(found.data(), address, kBytes) == CUDA_SUCCESS);
    CHILD_CHECK(found == pattern(static_cast<unsigned>(std::stoul(arguments.at(1)))));
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kReadAfterOwnerFreed("read after owner freed", read_after_owner_freed);

// Argument: the handle.
int describe_imported_memory(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    unsigned managed = 1;
    int ordinal = -1;
    CUcontext its_context = nullptr;
    unsigned long long id = 0;
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_CONTEXT,    CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *values[] = {&managed, &ordinal, &its_context, &id, &bytes, &begin};
    CHILD_CHECK(cu().cuPointerGetAttributes(6, names, values, address + 1000) == CUDA_SUCCESS);
    CHILD_CHECK(managed == 0 && ordinal == 0 && its_context == context && id != 0);
    int exportable = 1;
    CHILD_CHECK(cu().cuPointerGetAttribute(&exportable,
                                           CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                           address) == CUDA_SUCCESS);
    CHILD_CHECK(exportable == 0);
    CHILD_CHECK(begin == address && bytes >= kBytes);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    unsigned long long next_id = 0;
    CHILD_CHECK(cu().cuPointerGetAttribute(&next_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) ==
                CUDA_SUCCESS);
    CHILD_CHECK(next_id != id);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) != CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kDescribeImported("describe imported memory", describe_imported_memory);

// Argument: the handle.
int touch_imported_memory(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    const unsigned char found = *reinterpret_cast<volatile unsigned char *>(address);
    (void)found;
    return 0;
}
const ChildStepRegistration kTouchImported("touch imported memory", touch_imported_memory);

TEST_F(IpcTest, two_processes_share_device_memory) {
    DeviceMemory memory(pattern(11));
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    EXPECT_EQ(0, run_child("exchange through IPC", {to_text(handle), "11", "12"}).exit_status);
    EXPECT_EQ(pattern(12), memory.read());
    EXPECT_EQ(0, run_child("exchange through IPC", {to_text(handle), "12", "13"}).exit_status);
    EXPECT_EQ(pattern(13), memory.read());
}

TEST_F(IpcTest, the_cpu_faults_when_it_touches_imported_memory) {
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    const ChildResult result = run_child("touch imported memory", {to_text(handle)});
    EXPECT_TRUE(result.signal == SIGSEGV || result.signal == SIGBUS);
}

TEST_F(IpcTest, the_exporting_process_cannot_open_its_own_handle) {
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
              cu().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

TEST_F(IpcTest, only_memory_of_cuMemAlloc_can_be_exported) {
    ManagedMemory managed(kBytes);
    CUipcMemHandle handle;
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, managed.address()));
    PinnedMemory pinned(kBytes);
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, pinned.address()));
    int on_stack = 0;
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, address_of(&on_stack)));
    Stream stream;
    CUdeviceptr pool_memory = 0;
    ASSERT_CU(cu().cuMemAllocAsync(&pool_memory, kBytes, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, pool_memory));
    EXPECT_CU(cu().cuMemFreeAsync(pool_memory, stream));
}

TEST_F(IpcTest, imported_memory_is_described) {
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    EXPECT_EQ(0, run_child("describe imported memory", {to_text(handle)}).exit_status);
}

TEST_F(IpcTest, imported_memory_of_a_peer_is_said_to_be_of_the_own_device) {
    if (!has_peer()) {
        GTEST_SKIP() << "needs two devices with peer access";
    }
    CUcontext peer = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&peer, 1));
    ASSERT_CU(cu().cuCtxPushCurrent(peer));
    {
        DeviceMemory memory(kBytes);
        CUipcMemHandle handle;
        ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
        EXPECT_EQ(0, run_child("describe imported memory", {to_text(handle)}).exit_status);
    }
    EXPECT_CU(cu().cuCtxPopCurrent(nullptr));
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(1));
}

TEST_F(IpcTest, the_handle_of_freed_memory_cannot_be_opened) {
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemAlloc(&address, kBytes));
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, address));
    ASSERT_CU(cu().cuMemFree(address));
    EXPECT_EQ(0, run_child("fail to open", {to_text(handle)}).exit_status);
    DeviceMemory other(kBytes);  // most likely at the same place
    EXPECT_EQ(0, run_child("fail to open", {to_text(handle)}).exit_status);
}

TEST_F(IpcTest, memory_lives_on_in_a_process_that_has_it_open_when_its_owner_frees_it) {
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemAlloc(&address, kBytes));
    const Bytes data = pattern(21);
    ASSERT_CU(cu().cuMemcpyHtoD(address, data.data(), kBytes));
    ASSERT_CU(cu().cuCtxSynchronize());
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, address));
    ChildProcess child("read after owner freed", {to_text(handle), "21"});
    ASSERT_TRUE(wait_for_peer(child.socket()));
    ASSERT_CU(cu().cuMemFree(address));
    DeviceMemory other(pattern(22));
    ASSERT_TRUE(release_peer(child.socket()));
    EXPECT_EQ(0, child.wait().exit_status);
    EXPECT_EQ(pattern(22), other.read());
}

// Small allocations share a block, which other memory in it keeps alive.
TEST_F(IpcTest, small_memory_in_the_place_of_mapped_memory_of_another_size_cannot_be_opened) {
    constexpr std::size_t kSmall = 64 << 10;
    DeviceMemory in_the_same_block(kSmall);
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuMemAlloc(&first, kSmall));
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, first));
    ChildProcess child("open what took its place", {to_text(handle)});
    ASSERT_TRUE(wait_for_peer(child.socket()));
    ASSERT_CU(cu().cuMemFree(first));
    ASSERT_CU(cu().cuMemAlloc(&second, kSmall / 2));
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, second));
    ASSERT_EQ(ssize_t{sizeof(handle)}, send(child.socket(), &handle, sizeof(handle), 0));
    const int status = child.wait().exit_status;
    ASSERT_CU(cu().cuMemFree(second));
    if (first != second) {
        GTEST_SKIP() << "the driver chose another address";
    }
    EXPECT_EQ(0, status);
}

TEST_F(IpcTest, memory_of_a_device_that_the_opener_does_not_see_can_be_opened) {
    if (!has_peer()) {
        GTEST_SKIP() << "needs two devices with peer access";
    }
    DeviceMemory memory(pattern(31));
    CUipcMemHandle handle;
    CUuuid other;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    ASSERT_CU(cu().cuDeviceGetUuid(&other, 1));
    EXPECT_EQ(0, run_child("exchange through IPC", {to_text(handle), "31", "32"},
                           {"CUDA_VISIBLE_DEVICES=" + gpu_name(other)})
                     .exit_status);
    EXPECT_EQ(pattern(32), memory.read());
}

}  // namespace
