// SPDX-License-Identifier: BSD-3-Clause
// Stream capture, and what must not be called meanwhile.
#include "test_support.hpp"

#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

namespace {

using CaptureTest = DriverTest;

constexpr std::size_t kBytes = 64 << 10;

// Sets the calling thread's capture mode for a scope.
class ThreadMode {
public:
    explicit ThreadMode(CUstreamCaptureMode mode) : mode_(mode) {
        EXPECT_CU(cu().cuThreadExchangeStreamCaptureMode(&mode_));
    }
    ~ThreadMode() { EXPECT_CU(cu().cuThreadExchangeStreamCaptureMode(&mode_)); }
    ThreadMode(const ThreadMode &) = delete;

private:
    CUstreamCaptureMode mode_;
};

// A graph that goes with the test.
class Graph {
public:
    explicit Graph(CUgraph handle) : handle_(handle) {}
    ~Graph() { EXPECT_CU(cu().cuGraphDestroy(handle_)); }
    Graph(const Graph &) = delete;

    std::size_t node_count() const {
        std::size_t count = 0;
        EXPECT_CU(cu().cuGraphGetNodes(handle_, nullptr, &count));
        return count;
    }
    void run(CUstream stream) const {
        CUgraphExec instance = nullptr;
        ASSERT_CU(cu().cuGraphInstantiateWithFlags(&instance, handle_, 0));
        EXPECT_CU(cu().cuGraphLaunch(instance, stream));
        EXPECT_CU(cu().cuStreamSynchronize(stream));
        EXPECT_CU(cu().cuGraphExecDestroy(instance));
    }

private:
    CUgraph handle_;
};

CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_CU(cu().cuStreamIsCapturing(stream, &status));
    return status;
}

// Ends a capture that should be good.
std::unique_ptr<Graph> end_capture(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_CU(cu().cuStreamEndCapture(stream, &graph));
    EXPECT_NE(nullptr, graph);
    return std::make_unique<Graph>(graph);
}

void expect_invalidated(CUstream stream) {
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(stream));
    CUgraph graph = reinterpret_cast<CUgraph>(1);
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu().cuStreamEndCapture(stream, &graph));
    EXPECT_EQ(nullptr, graph);
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(stream));
}

// A call while somebody captures. It does nothing to the stream that is capturing.
struct NamedCall {
    const char *name;
    std::function<CUresult()> call;
};

class CallTest : public CaptureTest {
protected:
    void SetUp() override {
        CaptureTest::SetUp();
        memory_ = std::make_unique<DeviceMemory>(kBytes);
        pinned_ = std::make_unique<PinnedMemory>(kBytes);
        stream_ = std::make_unique<Stream>();
        event_ = std::make_unique<Event>();
        ASSERT_CU(cu().cuEventRecord(*event_, *stream_));
        ASSERT_CU(cu().cuEventSynchronize(*event_));
        host_.reset(std::aligned_alloc(4096, kBytes));
    }
    void TearDown() override {
        memory_.reset();
        pinned_.reset();
        stream_.reset();
        event_.reset();
        CaptureTest::TearDown();
    }

    std::unique_ptr<DeviceMemory> memory_;
    std::unique_ptr<PinnedMemory> pinned_;
    std::unique_ptr<Stream> stream_;  // not the one that is capturing
    std::unique_ptr<Event> event_;
    std::unique_ptr<void, decltype(&std::free)> host_{nullptr, std::free};
    std::vector<NamedCall> calls_;
};

// The calls that are "potentially unsafe".
class UnsafeCallTest : public CallTest {
protected:
    void SetUp() override {
        CallTest::SetUp();
        calls_ = {
            {"cuMemAlloc and cuMemFree",
             [] {
                 CUdeviceptr address = 0;
                 const CUresult result = cu().cuMemAlloc(&address, kBytes);
                 return result != CUDA_SUCCESS ? result : cu().cuMemFree(address);
             }},
            {"cuMemHostAlloc and cuMemFreeHost",
             [] {
                 void *pointer = nullptr;
                 const CUresult result = cu().cuMemHostAlloc(&pointer, kBytes, 0);
                 return result != CUDA_SUCCESS ? result : cu().cuMemFreeHost(pointer);
             }},
            {"cuMemHostRegister and cuMemHostUnregister",
             [this] {
                 const CUresult result = cu().cuMemHostRegister(host_.get(), kBytes, 0);
                 return result != CUDA_SUCCESS ? result : cu().cuMemHostUnregister(host_.get());
             }},
            {"cuPointerSetAttribute",
             [this] {
                 const unsigned set = 1;
                 return cu().cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                                   memory_->address());
             }},
            {"cuEventQuery", [this] { return cu().cuEventQuery(*event_); }},
            {"cuEventSynchronize", [this] { return cu().cuEventSynchronize(*event_); }},
            {"cuStreamQuery", [this] { return cu().cuStreamQuery(*stream_); }},
            {"cuStreamSynchronize", [this] { return cu().cuStreamSynchronize(*stream_); }},
        };
    }
};

// Those that nobody needs to avoid.
class HarmlessCallTest : public CallTest {
protected:
    void SetUp() override {
        CallTest::SetUp();
        calls_ = {
            {"cuPointerGetAttributes",
             [this] {
                 unsigned type = 0;
                 void *data = &type;
                 CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
                 return cu().cuPointerGetAttributes(1, &attribute, &data, memory_->address());
             }},
            {"cuStreamCreate and cuStreamDestroy",
             [] {
                 CUstream stream = nullptr;
                 const CUresult result = cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
                 return result != CUDA_SUCCESS ? result : cu().cuStreamDestroy(stream);
             }},
            {"cuEventCreate and cuEventDestroy",
             [] {
                 CUevent event = nullptr;
                 const CUresult result = cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
                 return result != CUDA_SUCCESS ? result : cu().cuEventDestroy(event);
             }},
            {"cuEventRecord", [this] { return cu().cuEventRecord(*event_, *stream_); }},
            {"cuMemcpyAsync",
             [this] {
                 return cu().cuMemcpyAsync(pinned_->address(), memory_->address(), kBytes,
                                           *stream_);
             }},
            {"cuMemcpy",
             [this] { return cu().cuMemcpy(pinned_->address(), memory_->address(), kBytes); }},
            {"cuIpcGetMemHandle",
             [this] {
                 CUipcMemHandle handle;
                 return cu().cuIpcGetMemHandle(&handle, memory_->address());
             }},
            {"cuCtxGetId",
             [this] {
                 unsigned long long id = 0;
                 return cu().cuCtxGetId(context_, &id);
             }},
        };
    }
};

// What a call gives in another thread, with the context of the test.
CUresult in_other_thread(CUcontext context, CUstreamCaptureMode mode,
                         const std::function<CUresult()> &call) {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
        EXPECT_CU(cu().cuCtxSetCurrent(context));
        ThreadMode set(mode);
        result = call();
    }).join();
    return result;
}

TEST_F(CaptureTest, each_thread_has_a_capture_mode_which_is_exchanged) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ASSERT_CU(cu().cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode) << "the mode that a thread begins with";
    std::thread([] {
        CUstreamCaptureMode other = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        EXPECT_CU(cu().cuThreadExchangeStreamCaptureMode(&other));
        EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, other);
    }).join();
    ASSERT_CU(cu().cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
}

TEST_F(CaptureTest, captured_work_runs_when_its_graph_is_launched) {
    const Bytes data = fresh_bytes(kBytes);
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory from(data);
    DeviceMemory middle(before);
    DeviceMemory to(before);
    Stream stream;
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(stream));
    EXPECT_CU(cu().cuMemcpyAsync(middle.address(), from.address(), kBytes, stream));
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), middle.address(), kBytes, stream));
    const auto graph = end_capture(stream);
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(before, to.read());
    EXPECT_EQ(2u, graph->node_count());
    graph->run(stream);
    EXPECT_EQ(data, to.read());
}

TEST_F(CaptureTest, a_stream_that_waits_for_a_captured_event_joins_the_capture) {
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory from(data);
    DeviceMemory to(kBytes);
    Stream stream;
    Stream other;
    Event fork;
    Event join;
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CU(cu().cuEventRecord(fork, stream));
    EXPECT_CU(cu().cuStreamWaitEvent(other, fork, 0));
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(other));
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kBytes, other));
    EXPECT_CU(cu().cuEventRecord(join, other));
    EXPECT_CU(cu().cuStreamWaitEvent(stream, join, 0));
    const auto graph = end_capture(stream);
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(other));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuEventQuery(fork));
    graph->run(stream);
    EXPECT_EQ(data, to.read());
}

TEST_F(CaptureTest, other_streams_work_meanwhile) {
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory from(data);
    PinnedMemory to(kBytes);
    Stream stream;
    Stream other;
    Event event;
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    {
        ThreadMode relaxed(CU_STREAM_CAPTURE_MODE_RELAXED);
        EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kBytes, other));
        EXPECT_CU(cu().cuEventRecord(event, other));
        EXPECT_CU(cu().cuEventSynchronize(event));
        EXPECT_EQ(data, to.read());
    }
    EXPECT_EQ(0u, end_capture(stream)->node_count());
}

TEST_F(CaptureTest, a_capture_is_begun_once_and_lost_if_it_is_ended_in_another_thread) {
    Stream stream;
    CUgraph graph = nullptr;
    EXPECT_NE(CUDA_SUCCESS, cu().cuStreamEndCapture(stream, &graph)) << "none was begun";
    EXPECT_NE(CUDA_SUCCESS,
              cu().cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE,
              cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
              in_other_thread(context_, CU_STREAM_CAPTURE_MODE_GLOBAL,
                              [&] { return cu().cuStreamEndCapture(stream, &graph); }));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cu().cuStreamEndCapture(stream, &graph));
    EXPECT_CU(cu().cuStreamSynchronize(stream));
}

TEST_F(CaptureTest, a_capturing_stream_cannot_be_asked_in_any_mode) {
    ThreadMode relaxed(CU_STREAM_CAPTURE_MODE_RELAXED);
    const std::function<CUresult(CUstream)> calls[] = {
        [](CUstream stream) { return cu().cuStreamQuery(stream); },
        [](CUstream stream) { return cu().cuStreamSynchronize(stream); },
        [](CUstream) { return cu().cuCtxSynchronize(); },
    };
    for (const auto &call : calls) {
        Stream stream;
        ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call(stream));
        expect_invalidated(stream);
    }
}

TEST_F(CaptureTest, the_legacy_default_stream_is_out_of_use_while_a_blocking_stream_captures) {
    DeviceMemory memory(kBytes);
    Stream stream(CU_STREAM_DEFAULT);
    ThreadMode relaxed(CU_STREAM_CAPTURE_MODE_RELAXED);
    ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              cu().cuMemsetD8Async(memory.address(), 1, kBytes, CU_STREAM_LEGACY));
    expect_invalidated(stream);
}

TEST_F(UnsafeCallTest, in_the_capturing_thread_invalidates_the_capture) {
    for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
        for (const NamedCall &unsafe : calls_) {
            SCOPED_TRACE(unsafe.name);
            Stream stream;
            ASSERT_CU(cu().cuStreamBeginCapture(stream, mode));
            EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, unsafe.call());
            expect_invalidated(stream);
        }
    }
}

TEST_F(UnsafeCallTest, in_another_thread_invalidates_a_global_capture) {
    for (const NamedCall &unsafe : calls_) {
        SCOPED_TRACE(unsafe.name);
        Stream stream;
        ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  in_other_thread(context_, CU_STREAM_CAPTURE_MODE_GLOBAL, unsafe.call));
        expect_invalidated(stream);
    }
}

TEST_F(UnsafeCallTest, of_a_relaxed_thread_is_permitted) {
    for (const NamedCall &unsafe : calls_) {
        SCOPED_TRACE(unsafe.name);
        Stream stream;
        ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        EXPECT_CU(in_other_thread(context_, CU_STREAM_CAPTURE_MODE_RELAXED, unsafe.call));
        {
            ThreadMode relaxed(CU_STREAM_CAPTURE_MODE_RELAXED);
            EXPECT_CU(unsafe.call());
        }
        end_capture(stream);
    }
}

TEST_F(UnsafeCallTest, in_another_thread_is_permitted_beside_a_thread_local_capture) {
    for (const NamedCall &unsafe : calls_) {
        SCOPED_TRACE(unsafe.name);
        Stream stream;
        ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        EXPECT_CU(in_other_thread(context_, CU_STREAM_CAPTURE_MODE_GLOBAL, unsafe.call));
        end_capture(stream);
    }
}

TEST_F(HarmlessCallTest, in_another_thread_is_permitted_beside_a_global_capture) {
    for (const NamedCall &harmless : calls_) {
        SCOPED_TRACE(harmless.name);
        Stream stream;
        ASSERT_CU(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        EXPECT_CU(in_other_thread(context_, CU_STREAM_CAPTURE_MODE_GLOBAL, harmless.call));
        EXPECT_EQ(0u, end_capture(stream)->node_count());
    }
}

TEST_F(HarmlessCallTest, cuMemcpy_is_permitted_in_the_capturing_thread) {
    for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
        Stream stream;
        ASSERT_CU(cu().cuStreamBeginCapture(stream, mode));
        EXPECT_CU(cu().cuMemcpy(pinned_->address(), memory_->address(), kBytes));
        end_capture(stream);
    }
}

}  // namespace
