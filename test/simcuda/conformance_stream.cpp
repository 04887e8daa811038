// SPDX-License-Identifier: BSD-3-Clause
// Streams themselves, and host functions in them.
#include "test_support.hpp"

#include <thread>

namespace {

using StreamTest = DriverTest;

TEST_F(StreamTest, a_stream_tells_what_it_was_made_with) {
    int least = -1;
    int greatest = 1;
    ASSERT_CU(cu().cuCtxGetStreamPriorityRange(&least, &greatest));
    EXPECT_EQ(0, least);
    EXPECT_LE(greatest, least);
    CUstream stream = nullptr;
    ASSERT_CU(cu().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
    int priority = 1;
    EXPECT_CU(cu().cuStreamGetPriority(stream, &priority));
    EXPECT_EQ(greatest, priority);
    unsigned flags = 0;
    EXPECT_CU(cu().cuStreamGetFlags(stream, &flags));
    EXPECT_EQ(static_cast<unsigned>(CU_STREAM_NON_BLOCKING), flags);
    CUcontext context = nullptr;
    EXPECT_CU(cu().cuStreamGetCtx(stream, &context));
    EXPECT_EQ(context_, context);
    EXPECT_CU(cu().cuStreamDestroy(stream));
}

TEST_F(StreamTest, priorities_out_of_range_are_clamped) {
    int greatest = 0;
    ASSERT_CU(cu().cuCtxGetStreamPriorityRange(nullptr, &greatest));
    CUstream stream = nullptr;
    ASSERT_CU(cu().cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, greatest - 100));
    int priority = 1;
    EXPECT_CU(cu().cuStreamGetPriority(stream, &priority));
    EXPECT_EQ(greatest, priority);
    EXPECT_CU(cu().cuStreamDestroy(stream));
}

TEST_F(StreamTest, ids_are_unique) {
    Stream one;
    Stream other;
    unsigned long long id = 0;
    unsigned long long other_id = 0;
    EXPECT_CU(cu().cuStreamGetId(one, &id));
    EXPECT_CU(cu().cuStreamGetId(other, &other_id));
    EXPECT_NE(id, other_id);
}

TEST_F(StreamTest, unknown_flags_are_refused) {
    CUstream stream = nullptr;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuStreamCreate(&stream, 0x100));
}

TEST_F(StreamTest, is_not_capturing) {
    Stream stream;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    EXPECT_CU(cu().cuStreamIsCapturing(stream, &status));
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
}

TEST_F(StreamTest, Query_tells_whether_all_is_complete) {
    Stream stream;
    Gate gate;
    EXPECT_CU(cu().cuStreamQuery(stream));
    gate.close(stream);
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    EXPECT_FALSE(gate.opened());
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_CU(cu().cuStreamQuery(stream));
}

// What a host function finds when it runs.
struct Visit {
    const PinnedMemory &memory;
    const Bytes &expected;
    std::atomic<int> calls{0};
    std::atomic<bool> arrived{false};
    std::atomic<int> status{-1};

    Visit(const PinnedMemory &its_memory, const Bytes &its_expected)
        : memory(its_memory), expected(its_expected) {}
    void look() {
        arrived = memory.read() == expected;
        ++calls;
    }
};

void CUDA_CB host_function(void *visit) {
    static_cast<Visit *>(visit)->look();
}

void CUDA_CB callback(CUstream, CUresult status, void *visit) {
    static_cast<Visit *>(visit)->status = status;
    static_cast<Visit *>(visit)->look();
}

TEST_F(StreamTest, a_host_function_runs_after_what_was_queued_before) {
    const Bytes data = fresh_bytes(1 << 20);
    DeviceMemory from(data);
    PinnedMemory to(data.size());
    Stream stream;
    Visit visit(to, data);
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemcpyAsync(to.address(), from.address(), data.size(), stream));
    ASSERT_CU(cu().cuLaunchHostFunc(stream, host_function, &visit));
    EXPECT_EQ(0, visit.calls);
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(1, visit.calls);
    EXPECT_TRUE(visit.arrived);
}

TEST_F(StreamTest, a_callback_is_told_of_success) {
    const Bytes data = fresh_bytes(1 << 20);
    DeviceMemory from(data);
    PinnedMemory to(data.size());
    Stream stream;
    Visit visit(to, data);
    ASSERT_CU(cu().cuMemcpyAsync(to.address(), from.address(), data.size(), stream));
    ASSERT_CU(cu().cuStreamAddCallback(stream, callback, &visit, 0));
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(1, visit.calls);
    EXPECT_EQ(CUDA_SUCCESS, visit.status);
    EXPECT_TRUE(visit.arrived);
}

struct Wait {
    std::atomic<bool> running{false};
    std::atomic<bool> end{false};
};

void CUDA_CB wait_function(void *argument) {
    auto *wait = static_cast<Wait *>(argument);
    wait->running = true;
    while (!wait->end) {
        std::this_thread::yield();
    }
}

TEST_F(StreamTest, a_host_function_that_waits_holds_back_its_stream_only) {
    const Bytes data = fresh_bytes(1 << 20);
    DeviceMemory from(data);
    PinnedMemory to(data.size());
    Stream stream;
    Stream other;
    Wait wait;
    ASSERT_CU(cu().cuLaunchHostFunc(stream, wait_function, &wait));
    while (!wait.running) {
        std::this_thread::yield();
    }
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), data.size(), other));
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_EQ(data, to.read());
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    wait.end = true;
    EXPECT_CU(cu().cuStreamSynchronize(stream));
}

}  // namespace
