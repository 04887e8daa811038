// SPDX-License-Identifier: BSD-3-Clause
// Devices in the compute mode EXCLUSIVE_PROCESS.
#include "controls_support.hpp"

namespace {

const std::vector<std::string> kExclusive = {"SIMCUDA_EXCLUSIVE=1"};

CUresult retain(CUdevice device) {
    CUcontext context = nullptr;
    return cu().cuDevicePrimaryCtxRetain(&context, device);
}

int compute_mode() {
    int mode = -1;
    EXPECT_CU(cu().cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
    return mode;
}

int have_a_device(const Arguments &) {
    CUcontext other = nullptr;
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    CHILD_CHECK(compute_mode() == CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
    CHILD_CHECK(retain(0) == CUDA_SUCCESS);
    CHILD_CHECK(retain(0) == CUDA_SUCCESS);  // the same context
    CHILD_CHECK(cu().create_context(&other, 0, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHILD_CHECK(release_peer(parent_socket()) && wait_for_peer(parent_socket()));
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHILD_CHECK(release_peer(parent_socket()) && wait_for_peer(parent_socket()));
    return 0;
}
const ChildStepRegistration kHaveADevice("have a device", have_a_device);

int find_a_device_taken(const Arguments &) {
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = -1;
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    CHILD_CHECK(retain(0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHILD_CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS && active == 0);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
    CHILD_CHECK(cu().create_context(&context, 0, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHILD_CHECK(start_cuda(1, &context));
    return 0;
}
const ChildStepRegistration kFindADeviceTaken("find a device taken", find_a_device_taken);

TEST_F(ControlsTest, a_device_in_exclusive_mode_has_one_context_of_all_processes) {
    EXPECT_EQ(CU_COMPUTEMODE_DEFAULT, compute_mode());
    ChildProcess owner("have a device", {}, kExclusive);
    ASSERT_TRUE(wait_for_peer(owner.socket()));
    EXPECT_EQ(0, run_child("find a device taken", {}, kExclusive).exit_status);
    EXPECT_EQ(0, run_child("find a device taken", {}, kExclusive).exit_status);
    ASSERT_TRUE(release_peer(owner.socket()) && wait_for_peer(owner.socket()));
    EXPECT_EQ(0, run_child("count devices", {"2"}, kExclusive).exit_status) << "it is free again";
    ASSERT_TRUE(release_peer(owner.socket()));
    EXPECT_EQ(0, owner.wait().exit_status);
}

}  // namespace
