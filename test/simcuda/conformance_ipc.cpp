// SPDX-License-Identifier: BSD-3-Clause
// Device memory that two processes share.
#include "child_process.hpp"
#include "test_support.hpp"

#include <csignal>
#include <cstdio>

namespace {

using IpcTest = DriverTest;

constexpr std::size_t kBytes = 4 << 20;

std::string to_text(const CUipcMemHandle& handle)
{
    std::string text;
    for (const char byte : handle.reserved) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(byte));
        text += digits;
    }
    return text;
}

CUipcMemHandle from_text(const std::string& text)
{
    CUipcMemHandle handle;
    for (std::size_t i = 0; i < sizeof(handle.reserved); ++i) {
        handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return handle;
}

// The bytes that a process writes who was told `seed`.
Bytes pattern(unsigned seed)
{
    Bytes bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) {
        bytes[i] = static_cast<unsigned char>(((seed + i) * 2654435761u) >> 13);
    }
    return bytes;
}

CUresult open_handle(CUdeviceptr* address, const std::string& text)
{
    return cu().cuIpcOpenMemHandle(address, from_text(text), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

// Arguments: the handle, the seed of what is there, the seed of what to write.
int exchange(const Arguments& arguments)
{
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

// Argument: the handle.
int touch_imported_memory(const Arguments& arguments)
{
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(open_handle(&address, arguments.at(0)) == CUDA_SUCCESS);
    const unsigned char found = *reinterpret_cast<volatile unsigned char*>(address);
    (void)found;
    return 0;
}
const ChildStepRegistration kTouchImported("touch imported memory", touch_imported_memory);

TEST_F(IpcTest, two_processes_share_device_memory)
{
    DeviceMemory memory(pattern(11));
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    EXPECT_EQ(0, run_child("exchange through IPC", {to_text(handle), "11", "12"}).exit_status);
    EXPECT_EQ(pattern(12), memory.read());
    EXPECT_EQ(0, run_child("exchange through IPC", {to_text(handle), "12", "13"}).exit_status);
    EXPECT_EQ(pattern(13), memory.read());
}

TEST_F(IpcTest, the_cpu_faults_when_it_touches_imported_memory)
{
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    const ChildResult result = run_child("touch imported memory", {to_text(handle)});
    EXPECT_TRUE(result.signal == SIGSEGV || result.signal == SIGBUS);
}

TEST_F(IpcTest, the_exporting_process_cannot_open_its_own_handle)
{
    DeviceMemory memory(kBytes);
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuIpcGetMemHandle(&handle, memory.address()));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
              cu().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

TEST_F(IpcTest, only_device_memory_can_be_exported)
{
    ManagedMemory managed(kBytes);
    CUipcMemHandle handle;
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, managed.address()));
    int on_stack = 0;
    EXPECT_NE(CUDA_SUCCESS, cu().cuIpcGetMemHandle(&handle, address_of(&on_stack)));
}

} // namespace
