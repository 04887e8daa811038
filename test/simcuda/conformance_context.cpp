// SPDX-License-Identifier: BSD-3-Clause
// Contexts and the stack of current ones.
#include "child_process.hpp"
#include "test_support.hpp"

#include <thread>

namespace {

using ContextTest = DriverTest;

CUcontext current() {
    CUcontext context = nullptr;
    EXPECT_CU(cu().cuCtxGetCurrent(&context));
    return context;
}

int release_primary(const Arguments &) {
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = -1;
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS && active == 0);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS && active == 1);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS && active == 0);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
    return 0;
}
const ChildStepRegistration kReleasePrimary("release primary context", release_primary);

TEST(PrimaryContext, is_active_while_it_is_retained) {
    EXPECT_EQ(0, run_child("release primary context").exit_status);
}

int reset_primary(const Arguments &) {
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    CUdeviceptr other = 0;
    unsigned type = 0;
    unsigned flags = 0;
    int active = -1;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(cu().cuMemAlloc(&memory, 4 << 20) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS && active == 0);
    CHILD_CHECK(cu().cuMemAlloc(&other, 8) != CUDA_SUCCESS);
    CHILD_CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory) ==
                CUDA_ERROR_INVALID_VALUE);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemAlloc(&memory, 8) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);  // the one before the reset
    return 0;
}
const ChildStepRegistration kResetPrimary("reset primary context", reset_primary);

TEST(PrimaryContext, is_empty_after_a_reset_and_still_has_to_be_released) {
    EXPECT_EQ(0, run_child("reset primary context").exit_status);
}

TEST_F(ContextTest, memory_goes_with_its_context) {
    CUcontext other = nullptr;
    CUdeviceptr memory = 0;
    unsigned type = 0;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    ASSERT_CU(cu().cuMemAlloc(&memory, 4 << 20));
    ASSERT_CU(cu().cuCtxDestroy(other));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
}

TEST_F(ContextTest, a_thread_keeps_a_context_that_another_one_destroys) {
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    std::thread([&] { EXPECT_CU(cu().cuCtxDestroy(other)); }).join();
    EXPECT_EQ(other, current());
    CUdeviceptr memory = 0;
    EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuMemAlloc(&memory, 8));
    ASSERT_CU(cu().cuCtxPopCurrent(nullptr));
    EXPECT_EQ(context_, current());
}

TEST_F(ContextTest, retaining_a_primary_context_again_gives_the_same) {
    CUcontext again = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&again, 0));
    EXPECT_EQ(context_, again);
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(0));
}

TEST_F(ContextTest, retaining_a_primary_context_does_not_make_it_current) {
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    CUcontext primary = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT_EQ(nullptr, current());
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(0));
}

TEST_F(ContextTest, each_thread_has_its_own_current_context) {
    std::thread([] {
        EXPECT_EQ(nullptr, current());
        CUdevice device;
        CUdeviceptr address = 0;
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxGetDevice(&device));
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cu().cuMemAlloc(&address, 8));
    }).join();
    EXPECT_EQ(context_, current());
}

TEST_F(ContextTest, current_contexts_are_a_stack) {
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    EXPECT_EQ(other, current()) << "a new context is current";
    ASSERT_CU(cu().cuCtxPushCurrent(context_));
    EXPECT_EQ(context_, current());
    CUcontext popped = nullptr;
    ASSERT_CU(cu().cuCtxPopCurrent(&popped));
    EXPECT_EQ(context_, popped);
    EXPECT_EQ(other, current());
    ASSERT_CU(cu().cuCtxPopCurrent(&popped));
    EXPECT_EQ(other, popped);
    EXPECT_EQ(context_, current());
    EXPECT_CU(cu().cuCtxDestroy(other));
}

TEST_F(ContextTest, SetCurrent_replaces_the_top_and_null_pops_it) {
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    ASSERT_CU(cu().cuCtxSetCurrent(context_));
    EXPECT_EQ(context_, current());
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_EQ(context_, current()) << "below the top lies what was current before";
    EXPECT_CU(cu().cuCtxDestroy(other));
}

TEST_F(ContextTest, an_empty_stack_cannot_be_popped) {
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    CUcontext popped = nullptr;
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxPopCurrent(&popped));
}

TEST_F(ContextTest, destroying_the_current_context_pops_it) {
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    ASSERT_CU(cu().cuCtxDestroy(other));
    EXPECT_EQ(context_, current());
}

TEST_F(ContextTest, ids_are_unique) {
    unsigned long long id = 0;
    unsigned long long other_id = 0;
    unsigned long long current_id = 0;
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    EXPECT_CU(cu().cuCtxGetId(context_, &id));
    EXPECT_CU(cu().cuCtxGetId(other, &other_id));
    EXPECT_CU(cu().cuCtxGetId(nullptr, &current_id));
    EXPECT_NE(id, other_id);
    EXPECT_EQ(other_id, current_id);
    EXPECT_CU(cu().cuCtxDestroy(other));
}

TEST_F(ContextTest, GetDevice_tells_the_device_of_the_current_context) {
    for (int i = 0; i < device_count(); ++i) {
        CUcontext context = nullptr;
        ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&context, i));
        ASSERT_CU(cu().cuCtxPushCurrent(context));
        CUdevice device = -1;
        EXPECT_CU(cu().cuCtxGetDevice(&device));
        EXPECT_EQ(i, device);
        EXPECT_CU(cu().cuCtxPopCurrent(nullptr));
        EXPECT_CU(cu().cuDevicePrimaryCtxRelease(i));
    }
}

TEST_F(ContextTest, peer_access_is_enabled_once) {
    if (!has_peer()) {
        GTEST_SKIP() << "needs two devices with peer access";
    }
    CUcontext peer = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&peer, 1));
    EXPECT_CU(cu().cuCtxEnablePeerAccess(peer, 0));
    EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu().cuCtxEnablePeerAccess(peer, 0));
    EXPECT_CU(cu().cuCtxDisablePeerAccess(peer));
    EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cu().cuCtxDisablePeerAccess(peer));
    int supported = 0;
    EXPECT_CU(
        cu().cuDeviceGetP2PAttribute(&supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    EXPECT_EQ(1, supported);
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(1));
}

}  // namespace
