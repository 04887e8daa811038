// SPDX-License-Identifier: BSD-3-Clause
// The default stream of each thread, and the forms of functions for programs that use it
// (conformance_fill.cpp has copies within a device and memsets).
#include "kernel_support.hpp"

#include <atomic>
#include <thread>

namespace {

constexpr std::size_t kBytes = 1 << 20;

// The function's form for programs whose default stream is that of the thread.
template <typename Function>
Function *per_thread(Function * /*other form*/, const std::string &symbol) {
    auto *function = cu().find<Function>(symbol);
    EXPECT_NE(nullptr, function) << "libcuda.so.1 has no " << symbol;
    return function;
}
#define PER_THREAD(function, symbol) per_thread(cu().function, symbol)

using PerThreadTest = DriverTest;

// A gate in the default stream of another thread, which lives until the gate opens.
class OtherThread {
public:
    explicit OtherThread(CUcontext context)
        : thread_([this, context] {
              EXPECT_CU(cu().cuCtxSetCurrent(context));
              gate.close(CU_STREAM_PER_THREAD);
              closed_ = true;
              EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
          }) {
        while (!closed_) {
            std::this_thread::yield();
        }
    }
    ~OtherThread() {
        gate.open();
        thread_.join();
    }
    OtherThread(const OtherThread &) = delete;

    Gate gate;

private:
    std::atomic<bool> closed_{false};
    std::thread thread_;
};

TEST_F(PerThreadTest, can_be_used) {
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory from(data);
    PinnedMemory to(kBytes);
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kBytes, CU_STREAM_PER_THREAD));
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_EQ(data, to.read());
}

TEST_F(PerThreadTest, does_not_wait_for_that_of_another_thread) {
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory from(data);
    PinnedMemory to(kBytes);
    OtherThread other(context_);
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kBytes, CU_STREAM_PER_THREAD));
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_EQ(data, to.read());
    EXPECT_FALSE(other.gate.opened()) << "a call waited";
}

TEST_F(PerThreadTest, holds_the_legacy_default_stream_back) {
    const Bytes data = fresh_bytes(kBytes);
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory from(data);
    DeviceMemory to(before);
    Onlooker onlooker(kBytes);
    OtherThread other(context_);
    ASSERT_CU(cu().cuMemcpyDtoD(to.address(), from.address(), kBytes));
    onlooker.expect_change(to.address(), before, data, other.gate, CU_STREAM_LEGACY);
}

TEST_F(PerThreadTest, waits_for_the_legacy_default_stream) {
    const Bytes data = fresh_bytes(kBytes);
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory from(data);
    DeviceMemory to(before);
    Onlooker onlooker(kBytes);
    LegacyGate legacy;
    ASSERT_CU(cu().cuMemcpyDtoDAsync(to.address(), from.address(), kBytes, CU_STREAM_PER_THREAD));
    onlooker.expect_change(to.address(), before, data, legacy.gate, CU_STREAM_PER_THREAD);
}

TEST_F(PerThreadTest, copies_from_pinned_memory_may_go_there) {
    const auto copy = PER_THREAD(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2_ptsz");
    PinnedMemory from{fresh_bytes(kBytes)};
    DeviceMemory to{fresh_bytes(kBytes)};
    Gate gate;
    gate.close(CU_STREAM_PER_THREAD);
    ASSERT_CU(copy(to.address(), from.data(), kBytes, nullptr));
    const Bytes now = fresh_bytes(kBytes);
    from.fill(now);
    EXPECT_FALSE(gate.opened()) << "the call waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_EQ(to.read(), now);
}

TEST_F(PerThreadTest, copies_to_and_from_the_host_do_not_wait_for_other_streams) {
    const auto to_device = PER_THREAD(cuMemcpyHtoD, "cuMemcpyHtoD_v2_ptds");
    const auto to_host = PER_THREAD(cuMemcpyDtoH, "cuMemcpyDtoH_v2_ptds");
    const auto to_host_later = PER_THREAD(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2_ptsz");
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory device(kBytes);
    PinnedMemory pinned(kBytes);
    Bytes pageable(kBytes);
    Stream blocking(CU_STREAM_DEFAULT);
    Gate gate;
    gate.close(blocking);
    ASSERT_CU(to_device(device.address(), data.data(), kBytes));
    ASSERT_CU(to_host(pageable.data(), device.address(), kBytes));
    EXPECT_EQ(data, pageable);
    ASSERT_CU(to_host_later(pinned.data(), device.address(), kBytes, nullptr));
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_EQ(data, pinned.read());
    EXPECT_FALSE(gate.opened()) << "a call waited";
}

TEST_F(PerThreadTest, a_copy_to_the_host_waits_for_it) {
    const auto copy = PER_THREAD(cuMemcpyDtoH, "cuMemcpyDtoH_v2_ptds");
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory from(data);
    PinnedMemory to(kBytes);
    Gate gate;
    gate.close(CU_STREAM_PER_THREAD);
    gate.open_later(std::chrono::milliseconds(30));
    ASSERT_CU(copy(to.data(), from.address(), kBytes));
    EXPECT_TRUE(gate.opened()) << "the call did not wait";
    EXPECT_EQ(data, to.read());
}

TEST_F(PerThreadTest, waits_for_it_do_not_wait_for_other_streams) {
    const auto synchronize = PER_THREAD(cuStreamSynchronize, "cuStreamSynchronize_ptsz");
    const auto query = PER_THREAD(cuStreamQuery, "cuStreamQuery_ptsz");
    const auto record = PER_THREAD(cuEventRecord, "cuEventRecord_ptsz");
    const auto record_too = PER_THREAD(cuEventRecordWithFlags, "cuEventRecordWithFlags_ptsz");
    Event event;
    Stream blocking(CU_STREAM_DEFAULT);
    Gate gate;
    gate.close(blocking);
    EXPECT_CU(synchronize(nullptr));
    EXPECT_CU(query(nullptr));
    ASSERT_CU(record(event, nullptr));
    EXPECT_CU(cu().cuEventSynchronize(event));
    ASSERT_CU(record_too(event, nullptr, 0));
    EXPECT_CU(cu().cuEventSynchronize(event));
    EXPECT_FALSE(gate.opened()) << "a call waited";
}

TEST_F(PerThreadTest, waits_for_it_wait) {
    const auto synchronize = PER_THREAD(cuStreamSynchronize, "cuStreamSynchronize_ptsz");
    const auto query = PER_THREAD(cuStreamQuery, "cuStreamQuery_ptsz");
    const auto record = PER_THREAD(cuEventRecord, "cuEventRecord_ptsz");
    Event event;
    Gate gate;
    gate.close(CU_STREAM_PER_THREAD);
    EXPECT_EQ(CUDA_ERROR_NOT_READY, query(nullptr));
    ASSERT_CU(record(event, nullptr));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
    EXPECT_FALSE(gate.opened()) << "a call waited";
    gate.open_later(std::chrono::milliseconds(30));
    EXPECT_CU(synchronize(nullptr));
    EXPECT_TRUE(gate.opened()) << "the call did not wait";
    EXPECT_CU(cu().cuEventQuery(event));
}

TEST_F(PerThreadTest, waits_for_an_event) {
    const auto wait = PER_THREAD(cuStreamWaitEvent, "cuStreamWaitEvent_ptsz");
    Event event;
    Stream stream;
    Stream blocking(CU_STREAM_DEFAULT);
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuEventRecord(event, stream));
    ASSERT_CU(wait(nullptr, event, 0));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
    EXPECT_CU(cu().cuStreamSynchronize(blocking)) << "nobody else waits";
    EXPECT_FALSE(gate.opened()) << "a call waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

void CUDA_CB count(void *calls) {
    ++*static_cast<std::atomic<int> *>(calls);
}

TEST_F(PerThreadTest, takes_what_else_a_stream_takes) {
    const auto launch = PER_THREAD(cuLaunchKernel, "cuLaunchKernel_ptsz");
    const auto call = PER_THREAD(cuLaunchHostFunc, "cuLaunchHostFunc_ptsz");
    const auto write = PER_THREAD(cuStreamWriteValue32, "cuStreamWriteValue32_v2_ptsz");
    LoadedKernel kernel;
    PinnedMemory word(sizeof(cuuint32_t));
    std::atomic<int> calls{0};
    Stream blocking(CU_STREAM_DEFAULT);
    CUdeviceptr address = word.address();
    void *parameters[] = {&address};
    Gate gate;
    gate.close(blocking);
    ASSERT_CU(write(nullptr, address, 1, 0));
    ASSERT_CU(launch(kernel.function(), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    ASSERT_CU(call(nullptr, count, &calls));
    EXPECT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT_EQ(1, calls);
    EXPECT_FALSE(gate.opened()) << "a call waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(blocking));  // before the kernel's module goes
}

TEST_F(PerThreadTest, a_function_without_a_stream_has_no_form_of_its_own) {
    void *function = nullptr;
    ASSERT_CU(cu().cuGetProcAddress("cuMemAlloc", &function, 12000,
                                    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    CUdeviceptr memory = 0;
    EXPECT_CU(reinterpret_cast<decltype(cu().cuMemAlloc)>(function)(&memory, kBytes));
    EXPECT_CU(cu().cuMemFree(memory));
}

}  // namespace
