// SPDX-License-Identifier: BSD-3-Clause
// Initialisation, and what the driver says about devices, functions and errors.
#include "child_process.hpp"
#include "test_support.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using DeviceTest = DriverTest;

int call_without_init(const Arguments &) {
    int number = 0;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    unsigned type = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = &type;
    CHILD_CHECK(cu().cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
    CHILD_CHECK(cu().cuDeviceGet(&number, 0) == CUDA_ERROR_NOT_INITIALIZED);
    CHILD_CHECK(cu().cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED);
    CHILD_CHECK(cu().cuMemAlloc(&address, 8) == CUDA_ERROR_NOT_INITIALIZED);
    CHILD_CHECK(cu().cuPointerGetAttribute(&type, attribute, address_of(&type)) ==
                CUDA_ERROR_NOT_INITIALIZED);
    CHILD_CHECK(cu().cuPointerGetAttributes(1, &attribute, &data, address_of(&type)) ==
                CUDA_ERROR_NOT_INITIALIZED);
    CHILD_CHECK(cu().cuDriverGetVersion(&number) == CUDA_SUCCESS && number >= 11040);
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDeviceGetCount(&number) == CUDA_SUCCESS && number > 0);
    return 0;
}
const ChildStepRegistration kCallWithoutInit("call without cuInit", call_without_init);

// Argument: the UUID of the only device that should be visible.
int see_one_device(const Arguments &arguments) {
    CUuuid uuid;
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    CHILD_CHECK(device_count() == 1);
    CHILD_CHECK(cu().cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS);
    CHILD_CHECK(hex(uuid) == arguments.at(0));
    return 0;
}
const ChildStepRegistration kSeeOneDevice("see one device", see_one_device);

int see_no_device(const Arguments &) {
    CHILD_CHECK(cu().cuInit(0) == CUDA_ERROR_NO_DEVICE);
    return 0;
}
const ChildStepRegistration kSeeNoDevice("see no device", see_no_device);

TEST(Initialisation, functions_fail_before_cuInit) {
    EXPECT_EQ(0, run_child("call without cuInit").exit_status);
}

TEST_F(DeviceTest, a_forked_child_cannot_use_the_driver) {
    const pid_t child = fork();
    if (child == 0) {
        int count = 0;
        CUdeviceptr address = 0;
        const bool refused = cu().cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                             cu().cuMemAlloc(&address, 8) == CUDA_ERROR_NOT_INITIALIZED &&
                             cu().cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    // The parent goes on.
    const Bytes data = fresh_bytes(1000);
    EXPECT_EQ(data, DeviceMemory(data).read());
}

TEST_F(DeviceTest, each_device_is_described) {
    ASSERT_GE(device_count(), 1);
    for (int i = 0; i < device_count(); ++i) {
        CUdevice device = -1;
        ASSERT_CU(cu().cuDeviceGet(&device, i));
        char name[128] = "";
        EXPECT_CU(cu().cuDeviceGetName(name, sizeof(name), device));
        EXPECT_NE('\0', name[0]);
        std::size_t bytes = 0;
        EXPECT_CU(cu().cuDeviceTotalMem(&bytes, device));
        EXPECT_GE(bytes, std::size_t{1} << 30);
        int unified = 0;
        EXPECT_CU(
            cu().cuDeviceGetAttribute(&unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
        EXPECT_EQ(1, unified);
    }
}

TEST_F(DeviceTest, the_bus_id_names_one_device) {
    for (int i = 0; i < device_count(); ++i) {
        char bus_id[32] = "";
        EXPECT_CU(cu().cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), i));
        CUdevice found = -1;
        EXPECT_CU(cu().cuDeviceGetByPCIBusId(&found, bus_id));
        EXPECT_EQ(i, found);
        int bus = -1;
        EXPECT_CU(cu().cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
        const std::string text = bus_id;  // domain:bus:device.function
        const std::size_t colon = text.find(':');
        EXPECT_EQ(bus, std::stoi(text.substr(colon + 1, 2), nullptr, 16)) << text;
    }
}

TEST_F(DeviceTest, devices_have_different_uuids) {
    for (int i = 0; i < device_count(); ++i) {
        for (int j = 0; j < i; ++j) {
            CUuuid one;
            CUuuid other;
            ASSERT_CU(cu().cuDeviceGetUuid(&one, i));
            ASSERT_CU(cu().cuDeviceGetUuid(&other, j));
            EXPECT_NE(hex(one), hex(other));
        }
    }
}

TEST_F(DeviceTest, an_unknown_device_is_refused) {
    CUdevice device;
    CUcontext context;
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGet(&device, device_count()));
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGet(&device, -1));
    EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cu().cuDevicePrimaryCtxRetain(&context, device_count()));
}

TEST_F(DeviceTest, CUDA_VISIBLE_DEVICES_takes_a_uuid_or_an_index) {
    const char *inherited = std::getenv("CUDA_VISIBLE_DEVICES");
    const int last = device_count() - 1;
    CUuuid uuid;
    ASSERT_CU(cu().cuDeviceGetUuid(&uuid, last));
    EXPECT_EQ(0,
              run_child("see one device", {hex(uuid)}, {"CUDA_VISIBLE_DEVICES=" + gpu_name(uuid)})
                  .exit_status);
    if (inherited == nullptr) {
        EXPECT_EQ(0, run_child("see one device", {hex(uuid)},
                               {"CUDA_VISIBLE_DEVICES=" + std::to_string(last)})
                         .exit_status);
    }
    EXPECT_EQ(0, run_child("see no device", {}, {"CUDA_VISIBLE_DEVICES="}).exit_status);
    EXPECT_EQ(0, run_child("see no device", {}, {"CUDA_VISIBLE_DEVICES=-1"}).exit_status);
}

TEST_F(DeviceTest, GetProcAddress_gives_functions_by_their_plain_name) {
    void *address = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    ASSERT_CU(cu().cuGetProcAddress("cuMemAlloc", &address, 12000, 0, &status));
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, status);
    CUdeviceptr memory = 0;
    ASSERT_CU(reinterpret_cast<decltype(cu().cuMemAlloc)>(address)(&memory, 100));
    EXPECT_CU(cu().cuMemFree(memory));
}

TEST_F(DeviceTest, GetProcAddress_does_not_find_an_unknown_function) {
    void *address = &address;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    cu().cuGetProcAddress("cuNoSuchFunction", &address, 12000, 0, &status);
    EXPECT_EQ(nullptr, address);
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
}

TEST(Errors, have_names_and_descriptions) {
    const char *text = nullptr;
    EXPECT_CU(cu().cuGetErrorName(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, &text));
    EXPECT_STREQ("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", text);
    EXPECT_CU(cu().cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    EXPECT_STREQ("out of memory", text);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuGetErrorName(static_cast<CUresult>(1000), &text));
    EXPECT_EQ(nullptr, text);
}

}  // namespace
