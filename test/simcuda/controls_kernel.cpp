// SPDX-License-Identifier: BSD-3-Clause
// What only the simulation shows of kernels: when they start, and which of them run side by side.
#include "controls_support.hpp"
#include "kernel_support.hpp"

namespace {

using KernelControlsTest = ControlsTest;

constexpr char kAnyImage[] = "any image";

// Whether the stream has nothing to do after a while.
bool is_idle(CUstream stream) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return cu().cuStreamQuery(stream) == CUDA_SUCCESS;
}

int launch_and_come_back(const Arguments &) {
    CUcontext context = nullptr;
    CHILD_CHECK(start_cuda(0, &context));
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    gate.open_later(std::chrono::milliseconds(50));
    CHILD_CHECK(spin.launch(stream, gate.word()) == CUDA_SUCCESS);
    CHILD_CHECK(gate.opened());
    CHILD_CHECK(cu().cuStreamQuery(stream) == CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kLaunchAndComeBack("launch and come back", launch_and_come_back);

TEST_F(KernelControlsTest, CUDA_LAUNCH_BLOCKING_makes_launches_wait) {
    const ChildResult result = run_child("launch and come back", {}, {"CUDA_LAUNCH_BLOCKING=1"});
    EXPECT_EQ(0, result.exit_status);
}

TEST_F(KernelControlsTest, any_image_will_do_and_handles_of_nothing_are_refused) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    ASSERT_CU(cu().cuModuleLoadData(&module, kAnyImage));
    EXPECT_CU(cu().cuModuleGetFunction(&function, module, "simcuda_spin"));
    EXPECT_CU(cu().cuModuleUnload(module));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleUnload(module));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
              cu().cuModuleGetFunction(&function, module, "simcuda_spin"));
    CUdeviceptr word = 0;
    void *parameters[] = {&word};
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
              cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
}

TEST_F(KernelControlsTest, modules_go_with_their_context) {
    CUcontext other = nullptr;
    CUmodule module = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    EXPECT_CU(cu().cuModuleLoadData(&module, kAnyImage));
    EXPECT_CU(cu().cuCtxDestroy(other));
    EXPECT_CU(cu().cuCtxSetCurrent(context_));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleUnload(module));
}

TEST_F(KernelControlsTest, a_kernel_starts_some_time_after_its_launch) {
    set("SIMCUDA_KERNEL_START_US", "100000");
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    gate.open();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_CU(spin.launch(stream, gate.word()));
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_LE(std::chrono::milliseconds(100), std::chrono::steady_clock::now() - start);
}

TEST_F(KernelControlsTest, a_kernel_that_fills_the_device_has_it_for_itself) {
    LoadedKernel spin;
    Stream stream;
    Stream other_stream;
    Gate gate;
    Gate other_gate;
    other_gate.open();
    ASSERT_CU(spin.launch(stream, gate.word()));
    ASSERT_CU(spin.launch(other_stream, other_gate.word()));
    EXPECT_FALSE(is_idle(other_stream));
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(other_stream));
}

TEST_F(KernelControlsTest, it_does_not_hold_back_another_device) {
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word()));
    CUcontext other = nullptr;
    ASSERT_TRUE(start_cuda(1, &other));
    {
        LoadedKernel other_spin;
        Stream other_stream;
        Gate other_gate;
        other_gate.open();
        EXPECT_CU(other_spin.launch(other_stream, other_gate.word()));
        EXPECT_CU(cu().cuStreamSynchronize(other_stream));
    }
    EXPECT_FALSE(gate.opened());
    EXPECT_CU(cu().cuCtxSetCurrent(context_));
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(1));
}

TEST_F(KernelControlsTest, a_kernel_that_reads_pageable_memory_destroys_its_context) {
    CUcontext other = nullptr;
    CUstream stream = nullptr;
    const cuuint32_t word = 1;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    EXPECT_CU(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_CU(cu().cuModuleLoadData(&module, kAnyImage));
    EXPECT_CU(cu().cuModuleGetFunction(&function, module, "simcuda_spin"));
    CUdeviceptr address = address_of(&word);
    void *parameters[] = {&address};
    EXPECT_CU(cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuStreamSynchronize(stream));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS,
              cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    EXPECT_CU(cu().cuCtxDestroy(other));
    EXPECT_CU(cu().cuCtxSetCurrent(context_));
}

TEST_F(KernelControlsTest, launches_fail_when_asked_to_and_are_counted) {
    LoadedKernel spin;
    Gate gate;
    gate.open();
    controls().reset_counts();
    set("SIMCUDA_FAIL", "cuLaunchKernel:2:719,cuModuleLoadData:1:2");
    EXPECT_CU(spin.launch(CU_STREAM_PER_THREAD, gate.word()));
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, spin.launch(CU_STREAM_PER_THREAD, gate.word()));
    EXPECT_CU(spin.launch(CU_STREAM_PER_THREAD, gate.word()));
    EXPECT_EQ(3u, controls().call_count("cuLaunchKernel"));
    CUmodule module = nullptr;
    EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cu().cuModuleLoadData(&module, kAnyImage));
    EXPECT_CU(cu().cuCtxSynchronize());
}

}  // namespace
