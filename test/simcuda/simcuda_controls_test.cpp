// SPDX-License-Identifier: BSD-3-Clause
// What only the simulated driver has: its variables, its counts, and the ways in which it shows
// mistakes that a real driver may hide.
#include "controls_support.hpp"

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

namespace {

double milliseconds_of(const std::function<void()> &work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
}

// The counts that a process wrote.
std::map<std::string, unsigned long> read_counts(const TemporaryFile &file) {
    std::map<std::string, unsigned long> found;
    std::ifstream input(file.name());
    std::string function;
    for (unsigned long count = 0; input >> function >> count;) {
        found[function] = count;
    }
    return found;
}

// Arguments: how many devices should be there.
int count_devices(const Arguments &arguments) {
    CUcontext context = nullptr;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(device_count() == std::stoi(arguments.at(0)));
    CHILD_CHECK(cu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kCountDevices("count devices", count_devices);

int fill_memory(const Arguments &) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(cu().cuMemAlloc(&address, 60 << 20) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemAlloc(&address, 60 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
    return 0;
}
const ChildStepRegistration kFillMemory("fill memory", fill_memory);

int fail_to_initialise(const Arguments &) {
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuInit(0) == CUDA_ERROR_SYSTEM_NOT_READY);
    CHILD_CHECK(cu().cuInit(0) == CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kFailToInitialise("fail to initialise", fail_to_initialise);

int exit_with_work_left(const Arguments &) {
    CUcontext context = nullptr;
    CHILD_CHECK(start_cuda(0, &context));
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    void *word = nullptr;
    CHILD_CHECK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemAlloc(&memory, 1 << 20) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemHostAlloc(&word, 8, 0) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemsetD8Async(memory, 1, 1 << 20, stream) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuStreamWaitValue32(stream, address_of(word), 1, CU_STREAM_WAIT_VALUE_EQ) ==
                CUDA_SUCCESS);
    return 0;
}
const ChildStepRegistration kExitWithWorkLeft("exit with work left", exit_with_work_left);

int read_freed_memory(const Arguments &) {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    CUdeviceptr pool_memory = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemAlloc(&memory, 1 << 20) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemAllocAsync(&pool_memory, 1 << 20, stream) == CUDA_SUCCESS);
    CHILD_CHECK(controls().set("SIMCUDA_DELAY_US", "20000") == 0);
    CHILD_CHECK(cu().cuMemsetD8Async(memory, 1, 8, stream) == CUDA_SUCCESS);  // time to queue
    CHILD_CHECK(cu().cuMemFreeAsync(pool_memory, stream) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuMemcpyAsync(memory, pool_memory, 1 << 20, stream) == CUDA_SUCCESS);
    CHILD_CHECK(cu().cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHILD_CHECK(cu().cuMemAlloc(&memory, 8) == CUDA_ERROR_ILLEGAL_ADDRESS);
    return 0;
}
const ChildStepRegistration kReadFreedMemory("read freed memory", read_freed_memory);

TEST_F(ControlsTest, calls_are_counted_by_function_in_all_its_forms) {
    DeviceMemory filled(8);
    controls().reset_counts();
    EXPECT_CU(cu().cuMemsetD8(filled.address(), 1, 8));
    EXPECT_CU(cu().find<decltype(cuMemsetD8)>("cuMemsetD8_v2_ptds")(filled.address(), 1, 8));
    EXPECT_EQ(2u, controls().call_count("cuMemsetD8"));
    EXPECT_EQ(2u, controls().call_count("cuMemsetD8_v2_ptds"));
    EXPECT_EQ(0u, controls().call_count("cuMemAlloc"));
    for (int i = 0; i < 3; ++i) {
        DeviceMemory memory(8);
    }
    EXPECT_EQ(3u, controls().call_count("cuMemAlloc"));
    EXPECT_EQ(3u, controls().call_count("cuMemAlloc_v2"));
    EXPECT_EQ(3u, controls().call_count("cuMemFree"));
    EXPECT_EQ(0u, controls().call_count("cuNoSuchFunction"));
    cu().cuMemFree(12345);
    EXPECT_EQ(4u, controls().call_count("cuMemFree")) << "calls that fail count too";
    controls().reset_counts();
    EXPECT_EQ(0u, controls().call_count("cuMemFree"));
}

TEST_F(ControlsTest, counts_are_written_when_the_process_ends) {
    TemporaryFile file;
    ASSERT_EQ(0, run_child("count devices", {"2"}, {std::string("SIMCUDA_COUNTS=") + file.name()})
                     .exit_status);
    auto counts = read_counts(file);
    EXPECT_EQ(1u, counts["cuInit"]);
    EXPECT_EQ(2u, counts["cuCtxSetCurrent"]);
    EXPECT_EQ(1u, counts["cuDevicePrimaryCtxRetain"]);
    EXPECT_EQ(0u, counts.count("cuMemAlloc"));
}

TEST_F(ControlsTest, the_number_and_size_of_devices_can_be_chosen) {
    EXPECT_EQ(0, run_child("count devices", {"5"}, {"SIMCUDA_DEVICES=5"}).exit_status);
    EXPECT_EQ(
        0, run_child("count devices", {"2"}, {"SIMCUDA_DEVICES=5", "CUDA_VISIBLE_DEVICES=4,0,7,1"})
               .exit_status);
    EXPECT_EQ(0, run_child("fill memory", {}, {"SIMCUDA_MEMORY_MB=100"}).exit_status);
}

TEST_F(ControlsTest, the_nth_call_fails) {
    DeviceMemory memory(64);
    set("SIMCUDA_FAIL", "cuMemsetD8:2:719,cuMemcpy_v2:1:2");
    EXPECT_CU(cu().cuMemsetD8(memory.address(), 1, 64));
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, cu().cuMemsetD8(memory.address(), 1, 64));
    EXPECT_CU(cu().cuMemsetD8(memory.address(), 1, 64));
    EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemcpy(memory.address(), memory.address(), 8));
    EXPECT_CU(cu().cuMemcpy(memory.address(), memory.address(), 8));
    EXPECT_EQ(0, run_child("fail to initialise", {}, {"SIMCUDA_FAIL=cuInit:2:802"}).exit_status);
}

TEST_F(ControlsTest, malformed_values_are_refused) {
    EXPECT_EQ(-1, controls().set("SIMCUDA_FAIL", "cuMemcpy"));
    EXPECT_EQ(-1, controls().set("SIMCUDA_FAIL", "cuMemcpy:0:1"));
    EXPECT_EQ(-1, controls().set("SIMCUDA_DELAY_US", "soon"));
    EXPECT_EQ(-1, controls().set("SIMCUDA_BANDWIDTH_GBS", "0"));
    EXPECT_EQ(-1, controls().set("SIMCUDA_PEER_ACCESS", "0-1"));
    EXPECT_EQ(-1, controls().set("SIMCUDA_PEER_ACCESS", "0-64=1"));
    EXPECT_EQ(-1, controls().set("SIMCUDA_DEVICES", "3")) << "cannot change any more";
    EXPECT_EQ(-1, controls().set("SIMCUDA_NO_SUCH", "3"));
}

TEST_F(ControlsTest, copies_take_the_delay_and_the_time_of_their_bytes) {
    DeviceMemory from(10 << 20);
    DeviceMemory to(10 << 20);
    Stream stream;
    const auto copy = [&] {
        EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), 10 << 20, stream));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
        EXPECT_CU(cu().cuStreamSynchronize(stream));
    };
    set("SIMCUDA_DELAY_US", "30000");
    EXPECT_GE(milliseconds_of(copy), 30);
    set("SIMCUDA_DELAY_US", "0");
    set("SIMCUDA_BANDWIDTH_GBS", "0.1");  // 105 ms
    EXPECT_GE(milliseconds_of(copy), 100);
}

TEST_F(ControlsTest, delays_of_different_streams_overlap) {
    constexpr int kStreams = 8;
    DeviceMemory memory(kStreams);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < kStreams; ++i) {
        streams.push_back(std::make_unique<Stream>());
    }
    set("SIMCUDA_DELAY_US", "50000");
    const double taken = milliseconds_of([&] {
        for (int i = 0; i < kStreams; ++i) {
            EXPECT_CU(cu().cuMemsetD8Async(memory.address() + i, 1, 1, *streams[i]));
        }
        EXPECT_CU(cu().cuCtxSynchronize());
    });
    EXPECT_GE(taken, 50);
    EXPECT_LT(taken, kStreams * 50 / 2);
}

// Which of two streams, with the same work queued in both, wrote last, for some rounds.
std::string race(int rounds) {
    std::string winners;
    DeviceMemory word(1);
    Stream stream;
    Stream other;
    for (int round = 0; round < rounds; ++round) {
        EXPECT_CU(cu().cuMemsetD8Async(word.address(), '1', 1, stream));
        EXPECT_CU(cu().cuMemsetD8Async(word.address(), '2', 1, other));
        EXPECT_CU(cu().cuCtxSynchronize());
        winners += static_cast<char>(word.read()[0]);
    }
    return winners;
}

TEST_F(ControlsTest, a_seed_makes_the_order_of_streams_random) {
    set("SIMCUDA_SEED", "7");
    set("SIMCUDA_DELAY_US", "1000");
    const std::string winners = race(40);
    EXPECT_NE(std::string::npos, winners.find('1')) << winners;
    EXPECT_NE(std::string::npos, winners.find('2')) << winners;
}

TEST_F(ControlsTest, pinned_memory_is_limited) {
    set("SIMCUDA_MAX_PINNED_BYTES", "10000");
    Bytes first(8000);
    Bytes second(8000);
    EXPECT_CU(cu().cuMemHostRegister(first.data(), first.size(), 0));
    EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemHostRegister(second.data(), second.size(), 0));
    void *pointer = nullptr;
    EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemHostAlloc(&pointer, 8000, 0));
    EXPECT_CU(cu().cuMemHostUnregister(first.data()));
    EXPECT_CU(cu().cuMemHostRegister(second.data(), second.size(), 0));
    EXPECT_CU(cu().cuMemHostUnregister(second.data()));
}

TEST_F(ControlsTest, peer_access_can_be_taken_away) {
    int can_access = 0;
    EXPECT_CU(cu().cuDeviceCanAccessPeer(&can_access, 0, 1));
    EXPECT_EQ(1, can_access);
    for (const char *value : {"0", "0-1=0", "1-0=0", "1,0-1=0"}) {
        set("SIMCUDA_PEER_ACCESS", value);
        EXPECT_CU(cu().cuDeviceCanAccessPeer(&can_access, 0, 1));
        EXPECT_EQ(0, can_access) << value;
        set("SIMCUDA_PEER_ACCESS", "0,0-1=1");
        EXPECT_CU(cu().cuDeviceCanAccessPeer(&can_access, 0, 1));
        EXPECT_EQ(1, can_access) << value;
    }
}

TEST_F(ControlsTest, a_freed_address_is_given_again) {
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    ASSERT_CU(cu().cuMemAlloc(&first, 3 << 20));
    ASSERT_CU(cu().cuMemFree(first));
    ASSERT_CU(cu().cuMemAlloc(&second, 3 << 20));
    EXPECT_EQ(first, second);
    EXPECT_CU(cu().cuMemFree(second));
}

TEST_F(ControlsTest, work_on_freed_memory_breaks_the_context) {
    EXPECT_EQ(0, run_child("read freed memory").exit_status);
}

TEST_F(ControlsTest, a_process_ends_with_work_left) {
    EXPECT_EQ(0, run_child("exit with work left").exit_status);
}

TEST_F(ControlsTest, handles_of_a_destroyed_context_are_refused) {
    CUcontext other = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUdeviceptr memory = 0;
    DeviceMemory alive(4096);
    ASSERT_CU(cu().create_context(&other, 0, 0));
    ASSERT_CU(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ASSERT_CU(cu().cuMemAlloc(&memory, 4096));
    ASSERT_CU(cu().cuCtxDestroy(other));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamQuery(stream));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuStreamDestroy(stream));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuEventQuery(event));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuEventRecord(event, stream));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuEventDestroy(event));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree(memory));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy(alive.address(), memory, 4096));
    EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuCtxSetCurrent(other));
    EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuCtxDestroy(other));
}

TEST_F(ControlsTest, calls_are_traced) {
    TemporaryFile file;
    ASSERT_EQ(0, run_child("fill memory", {},
                           {"SIMCUDA_MEMORY_MB=100", std::string("SIMCUDA_TRACE=") + file.name()})
                     .exit_status);
    std::ifstream input(file.name());
    std::map<std::string, std::vector<std::string>> found;  // function and arguments by result
    double last_time = 0;
    for (std::string line; std::getline(input, line);) {
        std::istringstream fields(line);
        double time = 0;
        int process = 0;
        int thread = 0;
        std::string result;
        std::string call;
        fields >> time >> process >> thread >> result;
        std::getline(fields, call);
        EXPECT_GE(time, last_time) << line;
        EXPECT_EQ(process, thread) << "all calls are those of the first thread: " << line;
        last_time = time;
        found[result].push_back(call);
    }
    ASSERT_EQ(4u, found["0"].size());
    EXPECT_EQ(" cuInit 0", found["0"][0]);
    EXPECT_EQ(0u, found["0"][3].rfind(" cuMemAlloc 62914560 -> 0x", 0)) << found["0"][3];
    EXPECT_EQ(std::vector<std::string>{" cuMemAlloc 62914560"}, found["2"]);
}

void CUDA_CB call_driver(void *result) {
    int count = 0;
    *static_cast<CUresult *>(result) = cu().cuDeviceGetCount(&count);
}

TEST_F(ControlsTest, a_host_function_may_not_call_the_driver) {
    Stream stream;
    CUresult result = CUDA_SUCCESS;
    ASSERT_CU(cu().cuLaunchHostFunc(stream, call_driver, &result));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, result);
}

}  // namespace
