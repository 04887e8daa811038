// SPDX-License-Identifier: BSD-3-Clause
// A stream capture of the application, in any thread and in the strictest mode, goes on while
// messages are
// copied.
#include "test/gtest/core/gpu_support.hpp"

#include "core/copy/copy_any.hpp"
#include "core/pinning/host_registration_cache.hpp"

#include <atomic>
#include <functional>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

using BeginCapture = CUresult (*)(CUstream, CUstreamCaptureMode);
using EndCapture = CUresult (*)(CUstream, CUgraph *);
using DestroyGraph = CUresult (*)(CUgraph);
using ExchangeMode = CUresult (*)(CUstreamCaptureMode *);

class CaptureTest : public GpuTest {
protected:
    void SetUp() override {
        if (begin_ == nullptr || end_ == nullptr || exchange_ == nullptr) {
            GTEST_SKIP() << "this driver has no stream capture";
        }
        ASSERT_EQ(cuda_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    ~CaptureTest() override {
        if (stream_ != nullptr) {
            cuda_.stream_destroy(stream_);
        }
    }

    /** Runs `work` while a global capture is under way; whether the capture ended well. */
    CUresult capture_around(const std::function<void()> &work) {
        EXPECT_EQ(begin_(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        work();
        CUgraph graph = nullptr;
        const CUresult result = end_(stream_, &graph);
        if (graph != nullptr && destroy_ != nullptr) {
            destroy_(graph);
        }
        return result;
    }
    CUstreamCaptureMode mode() {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        EXPECT_EQ(exchange_(&mode), CUDA_SUCCESS);
        CUstreamCaptureMode former = mode;
        EXPECT_EQ(exchange_(&former), CUDA_SUCCESS);
        return mode;
    }

    // Of CUDA 10.1 and later.
    const BeginCapture begin_ = cuda_function<BeginCapture>("cuStreamBeginCapture_v2");
    const EndCapture end_ = cuda_function<EndCapture>("cuStreamEndCapture");
    const DestroyGraph destroy_ = cuda_function<DestroyGraph>("cuGraphDestroy");
    const ExchangeMode exchange_ = cuda_function<ExchangeMode>("cuThreadExchangeStreamCaptureMode");
    CUstream stream_ = nullptr;
};

TEST_F(CaptureTest, IsDisturbedByAnUnguardedQuery) {
    CUevent event = nullptr;
    ASSERT_EQ(cuda_.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_NE(capture_around([&] { cuda_.event_query(event); }), CUDA_SUCCESS)
        << "the driver does not mind, so the other tests say nothing";
    cuda_.event_destroy(event);
}

TEST_F(CaptureTest, GoesOnWhileMessagesAreCopied) {
    Buffer device(MemoryKind::device, 1 << 20);
    Buffer host(MemoryKind::pinned, 1 << 20);
    Buffer back(MemoryKind::host, 1 << 20);
    host.fill(1);
    const auto work = [&] {
        // All of it happens for the first time: streams and events are made.
        CopyEngine engine;
        CopyTicket tickets[8];
        for (size_t i = 0; i < 8; ++i) {
            const size_t length = i % 4 == 3 ? 1 << 20 : 1000;
            EXPECT_NE(start_any(engine, device.data(), host.data(), length, &tickets[i]),
                      Status::gpu_error);
        }
        for (CopyTicket &ticket : tickets) {
            EXPECT_EQ(engine.wait(&ticket), Status::ok);
        }
        EXPECT_EQ(copy_any(back.data(), device.data(), 1 << 20), Status::ok);
    };
    EXPECT_EQ(capture_around(work), CUDA_SUCCESS) << "in the capturing thread itself";
    EXPECT_EQ(back.check(0, 1 << 20, 1, 0), "");
    back.fill(2);
    EXPECT_EQ(capture_around([&] { std::thread(work).join(); }), CUDA_SUCCESS) << "in another";
    EXPECT_EQ(back.check(0, 1 << 20, 1, 0), "");
}

TEST_F(CaptureTest, GoesOnWhenAnEngineEnds) {
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    EXPECT_EQ(capture_around([&] {
                  std::thread([&] {
                      CopyEngine engine;
                      CopyTicket ticket;
                      start_any(engine, device.data(), host.data(), 64, &ticket);
                      engine.wait(&ticket);
                  }).join();
              }),
              CUDA_SUCCESS);
}

/** cuMemcpy, when all else has failed. */
TEST_F(CaptureTest, GoesOnWhileTheLastResortCopies) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::host, 4096);
    host.fill(1);
    const auto work = [&] {
        cuda_.ctx_push_current(context_);
        set_simulation("SIMCUDA_FAIL",
                       "cuMemcpyAsync:1:2,cuMemcpyAsync:1:2,cuMemcpyAsync:1:2,cuMemcpyAsync:1:2");
        reset_calls();
        EXPECT_EQ(copy_any(device.data(), host.data(), 4096), Status::ok);
        EXPECT_EQ(calls("cuMemcpy"), 1u);
        set_simulation("SIMCUDA_FAIL", "");
    };
    EXPECT_EQ(capture_around([&] { std::thread(work).join(); }), CUDA_SUCCESS);
    EXPECT_EQ(device.check(0, 4096, 1, 0), "");
}

TEST_F(CaptureTest, GoesOnWhenANewBufferIsMet) {
    Buffer device(MemoryKind::device, 4096);
    EXPECT_EQ(capture_around([&] { std::thread([&] { query_memory(device.data()); }).join(); }),
              CUDA_SUCCESS);
}

TEST_F(CaptureTest, GoesOnWhenHostMemoryIsLocked) {
    constexpr size_t kBytes = 1 << 20;
    Buffer host(MemoryKind::host, kBytes);
    HostRegistrationCache &pins = HostRegistrationCache::instance();
    pins.enable(size_t{1} << 30);
    EXPECT_EQ(capture_around([&] {
                  std::thread([&] {
                      for (int i = 0; i < 2; ++i) {
                          pins.acquire(query_memory(host.data()), host.data(), kBytes, context_, 1);
                      }
                      EXPECT_EQ(query_memory(host.data()).kind, MemoryKind::pinned);
                      pins.invalidate(host.data(), kBytes);
                  }).join();
              }),
              CUDA_SUCCESS);
    pins.enable(0);
}

TEST_F(CaptureTest, ModeOfTheCallerStays) {
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    for (const CUstreamCaptureMode wanted :
         {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED,
          CU_STREAM_CAPTURE_MODE_GLOBAL}) {
        CUstreamCaptureMode set = wanted;
        ASSERT_EQ(exchange_(&set), CUDA_SUCCESS);
        {
            CopyEngine engine;
            CopyTicket ticket;
            const CopyEngine::Scope scope(engine);
            start_any(engine, device.data(), host.data(), 64, &ticket);
            EXPECT_EQ(engine.wait(&ticket), Status::ok);
        }
        EXPECT_EQ(mode(), wanted);
        const LogCapture log;
        EXPECT_EQ(copy_any(host.data(), device.data(), 100), Status::ok);
        EXPECT_EQ(mode(), wanted);
    }
}

}  // namespace
}  // namespace gpushm
