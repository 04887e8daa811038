// SPDX-License-Identifier: BSD-3-Clause
// Modules, and kernels as operations of streams.
#include "kernel_support.hpp"

namespace {

// The variable of gpushm's kernels.
constexpr char kVariableImage[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .global .align 16 .b8 gpushm_cancellations[2048];
)";

using ModuleTest = DriverTest;
using KernelTest = DriverTest;

CUresult launch_with(CUfunction function, unsigned grid, unsigned block, void **parameters) {
    return cu().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, CU_STREAM_PER_THREAD,
                               parameters, nullptr);
}

TEST_F(ModuleTest, a_function_keeps_its_handle) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUfunction again = nullptr;
    ASSERT_CU(cu().cuModuleLoadDataEx(&module, kSpinImage, 0, nullptr, nullptr));
    EXPECT_CU(cu().cuModuleGetFunction(&function, module, "simcuda_spin"));
    EXPECT_CU(cu().cuModuleGetFunction(&again, module, "simcuda_spin"));
    EXPECT_NE(nullptr, function);
    EXPECT_EQ(function, again);
    EXPECT_CU(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, what_is_null_or_not_there_is_refused) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoadData(nullptr, kSpinImage));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuModuleLoadData(&module, nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuModuleUnload(nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
              cu().cuModuleGetFunction(&function, nullptr, "simcuda_spin"));
    ASSERT_CU(cu().cuModuleLoadData(&module, kSpinImage));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetFunction(nullptr, module, "simcuda_spin"));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetFunction(&function, module, nullptr));
    EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetFunction(&function, module, "no_kernel"));
    EXPECT_CU(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, a_context_is_needed) {
    CUmodule module = nullptr;
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cu().cuModuleLoadData(&module, kSpinImage));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
              cu().cuModuleLoadDataEx(&module, kSpinImage, 0, nullptr, nullptr));
}

TEST_F(ModuleTest, during_a_capture_modules_may_be_loaded_but_not_unloaded) {
    Stream stream;
    CUmodule module = nullptr;
    CUgraph graph = nullptr;
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CU(cu().cuModuleLoadData(&module, kSpinImage));
    EXPECT_CU(cu().cuStreamEndCapture(stream, &graph));
    EXPECT_CU(cu().cuGraphDestroy(graph));
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().cuModuleUnload(module));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu().cuStreamEndCapture(stream, &graph));
    EXPECT_CU(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, has_a_variable_that_is_zero_at_first) {
    constexpr std::size_t kBytes = 2048;
    CUmodule module = nullptr;
    ASSERT_CU(cu().cuModuleLoadData(&module, kVariableImage));
    CUdeviceptr address = 0;
    CUdeviceptr again = 0;
    std::size_t bytes = 0;
    EXPECT_CU(cu().cuModuleGetGlobal(&address, &bytes, module, "gpushm_cancellations"));
    EXPECT_EQ(kBytes, bytes);
    EXPECT_CU(cu().cuModuleGetGlobal(&again, nullptr, module, "gpushm_cancellations"));
    EXPECT_EQ(address, again);
    EXPECT_CU(cu().cuModuleGetGlobal(nullptr, &bytes, module, "gpushm_cancellations"));
    EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetGlobal(&again, &bytes, module, "no_variable"));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetGlobal(&again, &bytes, module, nullptr));
    Bytes read(kBytes, 1);
    EXPECT_CU(cu().cuMemcpyDtoH(read.data(), address, kBytes));
    EXPECT_EQ(Bytes(kBytes, 0), read);
    const Bytes data = fresh_bytes(kBytes);
    EXPECT_CU(cu().cuMemcpyHtoD(address, data.data(), kBytes));
    EXPECT_CU(cu().cuMemcpyDtoH(read.data(), address, kBytes));
    EXPECT_EQ(data, read);
    EXPECT_CU(cu().cuModuleUnload(module));
}

// Whatever the work is, and whether modules are loaded lazily or not (CUDA_MODULE_LOADING).
TEST_F(ModuleTest, loading_waits_for_the_work_of_the_context) {
    Stream stream;
    CUmodule module = nullptr;
    Gate gate;
    gate.close(stream);
    gate.open_later(std::chrono::milliseconds(50));
    EXPECT_CU(cu().cuModuleLoadData(&module, kSpinImage));
    EXPECT_TRUE(gate.opened());
    EXPECT_CU(cu().cuModuleUnload(module));
}

TEST_F(ModuleTest, loading_does_not_wait_for_other_contexts) {
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    EXPECT_CU(cu().cuCtxSetCurrent(context_));
    {
        Stream stream;
        Gate gate;
        gate.close(stream);
        CUmodule module = nullptr;
        EXPECT_CU(cu().cuCtxSetCurrent(other));
        EXPECT_CU(cu().cuModuleLoadData(&module, kSpinImage));
        EXPECT_FALSE(gate.opened());
        EXPECT_CU(cu().cuCtxDestroy(other));
        EXPECT_CU(cu().cuCtxSetCurrent(context_));
    }
}

TEST_F(KernelTest, a_stream_waits_for_its_kernel_and_others_do_not) {
    const Bytes data = fresh_bytes(1 << 20);
    DeviceMemory from(data);
    PinnedMemory behind(data.size());
    PinnedMemory beside(data.size());
    LoadedKernel spin;
    Stream stream;
    Stream other;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word()));
    EXPECT_CU(cu().cuMemcpyAsync(behind.address(), from.address(), data.size(), stream));
    EXPECT_CU(cu().cuMemcpyAsync(beside.address(), from.address(), data.size(), other));
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_EQ(data, beside.read());
    EXPECT_NE(data, behind.read());
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data, behind.read());
}

// For the driver makes such copies by kernels.
TEST_F(KernelTest, a_copy_within_a_device_waits_for_a_kernel_that_fills_it) {
    const Bytes data = fresh_bytes(4096);
    DeviceMemory from(data);
    DeviceMemory to(data.size());
    PinnedMemory beside(data.size());
    LoadedKernel spin;
    Stream stream;
    Stream other;
    Stream third;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word(), kFillingBlocks, kFillingThreads));
    bool waits = false;
    for (int i = 0; i < 100 && !waits; ++i) {  // the first ones may come before the kernel
        EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), data.size(), other));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        waits = cu().cuStreamQuery(other) == CUDA_ERROR_NOT_READY;
    }
    EXPECT_TRUE(waits);
    EXPECT_CU(cu().cuMemcpyAsync(beside.address(), from.address(), data.size(), third));
    EXPECT_CU(cu().cuStreamSynchronize(third));
    EXPECT_EQ(data, beside.read());
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(other));
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_EQ(data, to.read());
}

TEST_F(KernelTest, a_context_waits_for_its_kernels) {
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word()));
    gate.open_later(std::chrono::milliseconds(50));
    EXPECT_CU(cu().cuCtxSynchronize());
    EXPECT_TRUE(gate.opened());
}

TEST_F(KernelTest, memory_is_freed_behind_kernels) {
    CUdeviceptr memory = 0;
    ASSERT_CU(cu().cuMemAlloc(&memory, 1 << 20));
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word()));
    gate.open_later(std::chrono::milliseconds(50));
    EXPECT_CU(cu().cuMemFree(memory));
    EXPECT_TRUE(gate.opened());
}

TEST_F(KernelTest, a_function_is_found_and_launched_first_beside_kernels) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    ASSERT_CU(cu().cuModuleLoadData(&module, kSpinImage));
    LoadedKernel spin;
    Stream stream;
    Stream other;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word()));
    EXPECT_CU(cu().cuModuleGetFunction(&function, module, "simcuda_spin"));
    CUdeviceptr word = gate.word();
    void *parameters[] = {&word};
    EXPECT_CU(cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, parameters, nullptr));
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuModuleUnload(module));
}

TEST_F(KernelTest, a_module_is_unloaded_behind_kernels) {
    CUmodule module = nullptr;
    ASSERT_CU(cu().cuModuleLoadData(&module, kSpinImage));
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    ASSERT_CU(spin.launch(stream, gate.word()));
    gate.open_later(std::chrono::milliseconds(50));
    EXPECT_CU(cu().cuModuleUnload(module));
    EXPECT_TRUE(gate.opened());
}

TEST_F(KernelTest, impossible_launches_are_refused) {
    LoadedKernel spin;
    Gate gate;
    CUdeviceptr word = gate.word();
    void *parameters[] = {&word};
    gate.open();
    EXPECT_CU(launch_with(spin.function(), 1, 1024, parameters));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(spin.function(), 0, 1, parameters));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(spin.function(), 1, 0, parameters));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(spin.function(), 1, 1025, parameters));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(spin.function(), 1, 1, nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch_with(nullptr, 1, 1, parameters));
    EXPECT_CU(cu().cuCtxSynchronize());
}

TEST_F(KernelTest, a_kernel_needs_a_stream_of_its_context) {
    LoadedKernel spin;
    Gate gate;
    gate.open();
    CUcontext other = nullptr;
    CUstream stream = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    EXPECT_CU(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, spin.launch(stream, gate.word()));
    EXPECT_CU(cu().cuCtxDestroy(other));
    EXPECT_CU(cu().cuCtxSetCurrent(context_));
}

TEST_F(KernelTest, a_kernel_is_captured) {
    LoadedKernel spin;
    Stream stream;
    Gate gate;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CU(spin.launch(stream, gate.word()));
    ASSERT_CU(cu().cuStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    EXPECT_CU(cu().cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(1u, nodes);
    ASSERT_CU(cu().cuGraphInstantiateWithFlags(&executable, graph, 0));
    EXPECT_CU(cu().cuGraphLaunch(executable, stream));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_CU(cu().cuGraphExecDestroy(executable));
    EXPECT_CU(cu().cuGraphDestroy(graph));
}

}  // namespace
