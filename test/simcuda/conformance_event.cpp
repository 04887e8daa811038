// SPDX-License-Identifier: BSD-3-Clause
// Events.
#include "test_support.hpp"

namespace {

using EventTest = DriverTest;

TEST_F(EventTest, an_event_that_was_not_recorded_is_complete) {
    Event event;
    EXPECT_CU(cu().cuEventQuery(event));
    EXPECT_CU(cu().cuEventSynchronize(event));
}

TEST_F(EventTest, an_event_is_complete_when_its_stream_gets_there) {
    const Bytes data = fresh_bytes(1 << 20);
    DeviceMemory from(data);
    PinnedMemory to(data.size());
    Stream stream;
    Event event;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemcpyAsync(to.address(), from.address(), data.size(), stream));
    ASSERT_CU(cu().cuEventRecord(event, stream));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
    EXPECT_FALSE(gate.opened());
    gate.open_later(std::chrono::milliseconds(20));
    EXPECT_CU(cu().cuEventSynchronize(event));
    EXPECT_TRUE(gate.opened());
    EXPECT_EQ(data, to.read());
    EXPECT_CU(cu().cuEventQuery(event));
}

TEST_F(EventTest, an_event_ignores_what_is_queued_after_it) {
    Stream stream;
    Event event;
    Gate gate;
    ASSERT_CU(cu().cuEventRecord(event, stream));
    gate.close(stream);
    EXPECT_CU(cu().cuEventSynchronize(event));
    EXPECT_FALSE(gate.opened());
}

TEST_F(EventTest, an_event_of_a_context_comes_after_all_its_streams) {
    if (cu().record_context == nullptr) {
        GTEST_SKIP() << "the driver is older than that of CUDA 12.5";
    }
    CUcontext context = nullptr;
    ASSERT_CU(cu().cuCtxGetCurrent(&context));
    Event event;
    ASSERT_CU(cu().record_context(context, event));
    EXPECT_CU(cu().cuEventSynchronize(event));
    Stream stream;
    Stream other;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().record_context(context, event));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
    EXPECT_CU(cu().cuStreamSynchronize(other)) << "nobody else waits";
    gate.open();
    EXPECT_CU(cu().cuEventSynchronize(event));
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu().record_context(context, event));
    CUgraph graph = nullptr;
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu().cuStreamEndCapture(stream, &graph));
}

TEST_F(EventTest, polling_an_event_ends_with_the_data_there) {
    DeviceMemory from(4096);
    PinnedMemory to(4096);
    Stream stream;
    Event event;
    for (int round = 0; round < 200; ++round) {
        const Bytes data = fresh_bytes(4096);
        ASSERT_CU(cu().cuMemcpyHtoD(from.address(), data.data(), data.size()));
        ASSERT_CU(cu().cuCtxSynchronize());
        ASSERT_CU(cu().cuMemcpyDtoHAsync(to.data(), from.address(), data.size(), stream));
        ASSERT_CU(cu().cuEventRecord(event, stream));
        CUresult result = CUDA_ERROR_NOT_READY;
        while (result == CUDA_ERROR_NOT_READY) {
            result = cu().cuEventQuery(event);
        }
        ASSERT_CU(result);
        ASSERT_EQ(data, to.read()) << round;
    }
}

TEST_F(EventTest, events_measure_time) {
    DeviceMemory memory(64 << 20);
    Stream stream;
    Event start(CU_EVENT_DEFAULT);
    Event end(CU_EVENT_DEFAULT);
    float milliseconds = -1;
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(&milliseconds, start, end))
        << "not recorded";
    ASSERT_CU(cu().cuEventRecord(start, stream));
    ASSERT_CU(cu().cuMemsetD8Async(memory.address(), 1, memory.bytes(), stream));
    ASSERT_CU(cu().cuEventRecord(end, stream));
    ASSERT_CU(cu().cuEventSynchronize(end));
    EXPECT_CU(cu().cuEventElapsedTime(&milliseconds, start, end));
    EXPECT_GT(milliseconds, 0);
}

TEST_F(EventTest, an_event_without_timing_measures_nothing) {
    Stream stream;
    Event start(CU_EVENT_DISABLE_TIMING);
    Event end(CU_EVENT_DISABLE_TIMING);
    ASSERT_CU(cu().cuEventRecord(start, stream));
    ASSERT_CU(cu().cuEventRecord(end, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    float milliseconds = 0;
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuEventElapsedTime(&milliseconds, start, end));
}

TEST_F(EventTest, an_event_is_not_recorded_in_a_stream_of_another_context) {
    Event event;
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    {
        Stream stream;
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cu().cuEventRecord(event, stream));
    }
    EXPECT_CU(cu().cuCtxDestroy(other));
}

}  // namespace
