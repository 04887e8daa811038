// SPDX-License-Identifier: BSD-3-Clause
// What only the simulation shows of memory: what is used by whom, and where the manual leaves the
// behaviour open.
#include "controls_support.hpp"
#include "virtual_memory.hpp"

#include <cstring>
#include <functional>
#include <unistd.h>

namespace {

using MemoryControlsTest = ControlsTest;

constexpr std::size_t kBytes = 4 << 20;

std::size_t free_memory() {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    EXPECT_CU(cu().cuMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
}

// Arguments: the handle, the device that opens it, the result.
int open_on_device(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(std::stoi(arguments.at(1)), &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == std::stoi(arguments.at(2)));
    return 0;
}
const ChildStepRegistration kOpenOnDevice("open on device", open_on_device);

// Arguments: the handle, whether to close it.
int hold_open(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    CHILD_CHECK(release_peer(parent_socket()) && wait_for_peer(parent_socket()));
    if (arguments.at(1) == "close") {
        CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
        CHILD_CHECK(release_peer(parent_socket()) && wait_for_peer(parent_socket()));
    }
    return 0;
}
const ChildStepRegistration kHoldOpen("hold open", hold_open);

// Argument: the handle.
int open_in_two_contexts(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUcontext other = nullptr;
    CUdeviceptr address = 0;
    CUdeviceptr again = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    CHILD_CHECK(cu().create_context(&other, 0, 0) == CUDA_SUCCESS);
    CHILD_CHECK(open_handle(&again, arguments.at(0)) == CUDA_ERROR_ALREADY_MAPPED);
    CHILD_CHECK(cu().cuCtxDestroy(other) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuIpcCloseMemHandle(address) == CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kOpenInTwoContexts("open in two contexts", open_in_two_contexts);

// Arguments: the device, the result of letting it access memory that comes as a descriptor.
int import_on_device(const Arguments &arguments) {
    CUcontext context = nullptr;
    const CUdevice device = std::stoi(arguments.at(0));
    CHILD_CHECK(start_cuda(device, &context));
    const int file = receive_file(parent_socket());
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CHILD_CHECK(import_memory(&handle, file) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemAddressReserve(&address, kBytes, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemMap(address, kBytes, 0, handle, 0) == CUDA_SUCCESS);
    CHILD_CHECK(allow_access(address, kBytes, device) == std::stoi(arguments.at(1)));
    return 0;
}
const ChildStepRegistration kImportOnDevice("import on device", import_on_device);

TEST_F(MemoryControlsTest, a_device_without_peer_access_cannot_open_a_handle) {
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    const std::string unsupported = std::to_string(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    EXPECT_EQ(0, run_child("open on device", {to_text(handle), "1", unsupported},
                           {"SIMCUDA_PEER_ACCESS=0-1=0"})
                     .exit_status);
    EXPECT_EQ(0, run_child("open on device", {to_text(handle), "0", unsupported},
                           {"SIMCUDA_PEER_ACCESS=0-1=0", "CUDA_VISIBLE_DEVICES=1"})
                     .exit_status);
    EXPECT_EQ(
        0, run_child("open on device", {to_text(handle), "0", "0"}, {"SIMCUDA_PEER_ACCESS=0-1=0"})
               .exit_status);
    EXPECT_EQ(0, run_child("open on device", {to_text(handle), "1", "0"}).exit_status);
}

TEST_F(MemoryControlsTest, one_context_of_a_device_opens_a_handle) {
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    EXPECT_EQ(0, run_child("open in two contexts", {to_text(handle)}).exit_status);
}

TEST_F(MemoryControlsTest, freed_memory_is_used_until_nobody_has_it_open) {
    const std::size_t before = free_memory();
    for (const char *how : {"close", "exit"}) {
        CUdeviceptr address = 0;
        CUipcMemHandle handle;
        ASSERT_CU(cu().cuMemAlloc(&address, kBytes));
        ASSERT_CU(cu().cuIpcGetMemHandle(&handle, address));
        ChildProcess child("hold open", {to_text(handle), how});
        ASSERT_TRUE(wait_for_peer(child.socket()));
        ASSERT_CU(cu().cuMemFree(address));
        EXPECT_EQ(before - kBytes, free_memory()) << how;
        ASSERT_TRUE(release_peer(child.socket()));
        if (std::string(how) == "close") {
            ASSERT_TRUE(wait_for_peer(child.socket()));
            EXPECT_EQ(before, free_memory());
            ASSERT_TRUE(release_peer(child.socket()));
        }
        EXPECT_EQ(0, child.wait().exit_status);
        EXPECT_EQ(before, free_memory()) << how;
    }
}

TEST_F(MemoryControlsTest, a_batch_names_the_copy_that_it_refuses_and_does_none) {
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory to(before);
    DeviceMemory from(kBytes);
    Stream stream;
    CUdeviceptr targets[] = {to.address(), to.address() + 100, to.address() + kBytes / 2};
    CUdeviceptr sources[] = {from.address(), from.address(), from.address()};
    std::size_t bytes[] = {8, 8, kBytes};  // the last goes beyond the end
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t begin = 0;
    std::size_t failed = 77;
    EXPECT_EQ(
        CUDA_ERROR_INVALID_VALUE,
        cu().copy_batch_12080(targets, sources, bytes, 3, &attributes, &begin, 1, &failed, stream));
    EXPECT_EQ(2u, failed);
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    EXPECT_EQ(
        CUDA_ERROR_INVALID_VALUE,
        cu().copy_batch_12080(targets, sources, bytes, 3, &attributes, &begin, 1, &failed, stream));
    EXPECT_EQ(SIZE_MAX, failed) << "it is about no copy";
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(before, to.read());
}

TEST_F(MemoryControlsTest, mapped_memory_is_copied_only_by_devices_that_may_access_it) {
    CUdeviceptr address = 0;
    const CUmemGenericAllocationHandle handle = create_memory(kBytes, false);
    ASSERT_CU(cu().cuMemAddressReserve(&address, kBytes, 0, 0, 0));
    ASSERT_CU(cu().cuMemMap(address, kBytes, 0, handle, 0));
    DeviceMemory other(kBytes);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD(other.address(), address, kBytes));
    ASSERT_CU(allow_access(address, kBytes, 1));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD(other.address(), address, kBytes));
    ASSERT_CU(allow_access(address, kBytes, 0));
    EXPECT_CU(cu().cuMemcpyDtoD(other.address(), address, kBytes));
    EXPECT_CU(cu().cuCtxSynchronize());  // nothing else waits for the copy
    ASSERT_CU(cu().cuMemUnmap(address, kBytes));
    ASSERT_CU(cu().cuMemMap(address, kBytes, 0, handle, 0));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD(other.address(), address, kBytes))
        << "access has to be set again";
    ASSERT_CU(cu().cuMemUnmap(address, kBytes));
    ASSERT_CU(cu().cuMemAddressFree(address, kBytes));
    ASSERT_CU(cu().cuMemRelease(handle));
}

TEST_F(MemoryControlsTest, a_device_without_peer_access_cannot_access_imported_memory) {
    struct Case {
        std::string device;
        CUresult result;
        std::vector<std::string> environment;
    };
    const std::string no_access = "SIMCUDA_PEER_ACCESS=0-1=0";
    const std::string hides = "CUDA_VISIBLE_DEVICES=1";
    for (const Case &one :
         {Case{"0", CUDA_SUCCESS, {no_access}}, Case{"1", CUDA_ERROR_INVALID_DEVICE, {no_access}},
          Case{"1", CUDA_SUCCESS, {}}, Case{"0", CUDA_SUCCESS, {hides}},
          Case{"0", CUDA_ERROR_INVALID_DEVICE, {hides, no_access}}}) {
        const CUmemGenericAllocationHandle handle = create_memory(kBytes, true);
        int file = -1;
        ASSERT_CU(export_memory(&file, handle));
        ChildProcess child("import on device", {one.device, std::to_string(one.result)},
                           one.environment);
        EXPECT_TRUE(send_file(child.socket(), file));
        close(file);
        EXPECT_EQ(0, child.wait().exit_status);
        EXPECT_CU(cu().cuMemRelease(handle));
    }
}

TEST_F(MemoryControlsTest, memory_is_used_until_nobody_has_its_descriptor) {
    const std::size_t before = free_memory();
    const CUmemGenericAllocationHandle handle = create_memory(kBytes, true);
    int file = -1;
    CUmemGenericAllocationHandle imported = 0;
    ASSERT_CU(export_memory(&file, handle));
    ASSERT_CU(cu().cuMemRelease(handle));
    EXPECT_EQ(before - kBytes, free_memory());
    ASSERT_CU(import_memory(&imported, file));
    close(file);
    EXPECT_EQ(before - kBytes, free_memory());
    ASSERT_CU(cu().cuMemRelease(imported));
    EXPECT_EQ(before, free_memory());
}

TEST_F(MemoryControlsTest, registrations_that_share_a_page_end_one_by_one) {
    Bytes host = fresh_bytes(kBytes);
    DeviceMemory device(kBytes / 2);
    unsigned char *second = host.data() + kBytes / 2 + 100;
    const std::size_t second_bytes = kBytes / 2 - 100;
    ASSERT_CU(cu().cuMemHostRegister(host.data(), kBytes / 2 + 100, 0));
    ASSERT_CU(cu().cuMemHostRegister(second, second_bytes, 0));
    ASSERT_CU(cu().cuMemHostUnregister(host.data()));
    EXPECT_CU(cu().cuMemcpyHtoD(device.address(), second, second_bytes));
    EXPECT_CU(cu().cuMemHostUnregister(second));
}

TEST_F(MemoryControlsTest, migrations_of_managed_memory_are_counted) {
    constexpr std::size_t kPage = 4096;
    ManagedMemory memory(kBytes);
    DeviceMemory device(kBytes);
    const auto migrations_of = [](const std::function<void()> &work) {
        const unsigned long before = controls().migrated_pages();
        work();
        EXPECT_CU(cu().cuCtxSynchronize());
        return controls().migrated_pages() - before;
    };
    std::memset(memory.data(), 1, kBytes);
    const auto to_device = [&] {
        EXPECT_CU(cu().cuMemcpy(device.address(), memory.address(), kBytes));
    };
    EXPECT_EQ(kBytes / kPage, migrations_of(to_device));
    EXPECT_EQ(0u, migrations_of(to_device)) << "they are there";
    memory.data()[5 * kPage] = 2;
    EXPECT_EQ(1u, migrations_of(to_device)) << "only what the CPU wrote";
    memory.data()[0] = 3;
    memory.data()[kBytes - 1] = 3;
    EXPECT_EQ(
        1u, migrations_of([&] {
            EXPECT_CU(cu().cuMemcpy(memory.address() + kPage, device.address(), kBytes - kPage));
        }))
        << "only what the copy touches";
}

}  // namespace
