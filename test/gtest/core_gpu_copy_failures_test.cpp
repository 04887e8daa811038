// SPDX-License-Identifier: BSD-3-Clause
// What a failing driver call makes of a copy: gpu_error with a line, and nothing else.
#include "core_gpu_support.hpp"

#include <chrono>
#include <ostream>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

struct Failure {
    const char *function;
    int error;
    int to_gpu_call;    // which call of a copy to the GPU fails
    int from_gpu_call;  // and of one from the GPU
    bool first_copy;    // whether it is called at an engine's first copy only
};

void PrintTo(const Failure &failure, std::ostream *out) { *out << failure.function; }

class CopyFailures : public GpuTest, public testing::WithParamInterface<Failure> {
protected:
    void SetUp() override {
        if (!simulated()) {
            GTEST_SKIP() << "makes calls fail";
        }
    }
};

Status copy(CopyEngine &engine, Buffer &destination, const Buffer &source) {
    CopyTicket ticket;
    const Status status =
        start_any(engine, destination.data(), source.data(), 4096, &ticket);
    return status == Status::in_progress ? engine.wait(&ticket) : status;
}

TEST_P(CopyFailures, OneFailingCallIsAnErrorOfThatCopyOnly) {
    for (const bool to_gpu : {true, false}) {
        const LogCapture log;
        Buffer device(MemoryKind::device, 4096);
        Buffer host(MemoryKind::pinned, 4096);
        Buffer &source = to_gpu ? host : device;
        Buffer &destination = to_gpu ? device : host;
        CopyEngine engine;
        source.fill(1);
        if (!GetParam().first_copy) {
            ASSERT_EQ(copy(engine, destination, source), Status::ok);
        }
        destination.fill(2);
        set_simulation("SIMCUDA_DELAY_US", "1000");  // a copy that is given up too early shows
        const Failure &failure = GetParam();
        const std::string rule =
            std::string(failure.function) + ":" +
            std::to_string(to_gpu ? failure.to_gpu_call : failure.from_gpu_call) + ":" +
            std::to_string(failure.error);
        set_simulation("SIMCUDA_FAIL", rule.c_str());
        EXPECT_EQ(copy(engine, destination, source), Status::gpu_error) << rule;
        set_simulation("SIMCUDA_FAIL", "");
        set_simulation("SIMCUDA_DELAY_US", "0");
        EXPECT_GE(log.count("GPU"), 1u) << "no line for the user";
        EXPECT_EQ(current_context(), context_);
        // The failed copy is over: what the owner writes now stays.
        destination.fill(3);
        source.fill(4);
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        EXPECT_EQ(destination.check(0, 4096, 3, 0), "") << rule;
        EXPECT_EQ(copy(engine, destination, source), Status::ok) << "after " << rule;
        EXPECT_EQ(destination.check(0, 4096, 4, 0), "");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CopyFailures,
    testing::Values(Failure{"cuPointerGetAttributes", CUDA_ERROR_ILLEGAL_ADDRESS, 1, 2, false},
                    Failure{"cuCtxPushCurrent", CUDA_ERROR_CONTEXT_IS_DESTROYED, 1, 1, false},
                    Failure{"cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY, 1, 1, true},
                    Failure{"cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY, 2, 2, true},
                    Failure{"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY, 1, 1, true},
                    Failure{"cuMemcpyAsync", CUDA_ERROR_ILLEGAL_ADDRESS, 1, 1, false},
                    Failure{"cuEventRecord", CUDA_ERROR_ILLEGAL_ADDRESS, 1, 1, false},
                    Failure{"cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS, 1, 1, false}));

TEST_F(GpuTest, CopyEngineLosesNoEventByARefusedCopy) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    reset_calls();
    {
        CopyEngine engine;
        for (const char *rule : {"cuMemcpyAsync:1:700", "cuEventRecord:1:700"}) {
            set_simulation("SIMCUDA_FAIL", rule);
            EXPECT_EQ(copy(engine, device, host), Status::gpu_error);
        }
    }
    EXPECT_EQ(calls("cuEventCreate"), 1u);
    EXPECT_EQ(calls("cuEventDestroy"), 1u);
}

TEST_F(GpuTest, CopyEngineWithoutAContextForTheMemoryIsAnError) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer host(MemoryKind::host, 64);
    MemoryInfo nameless;
    nameless.kind = MemoryKind::device;
    set_simulation("SIMCUDA_FAIL", "cuDevicePrimaryCtxRetain:1:2");
    CopyEngine engine;
    CopyTicket ticket;
    EXPECT_EQ(engine.start(host.data(), host.data() + 32, 32, nameless, CopyDirection::from_gpu,
                           &ticket),
              Status::gpu_error);
    EXPECT_EQ(log.count("cuDevicePrimaryCtxRetain"), 1u);
}

TEST_F(GpuTest, CopyEngineStreamsAreNotLostWhenTheSecondIsRefused) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    set_simulation("SIMCUDA_FAIL", "cuStreamCreate:2:2");
    reset_calls();
    {
        CopyEngine engine;
        EXPECT_EQ(copy(engine, device, host), Status::gpu_error);
    }
    EXPECT_EQ(calls("cuStreamCreate"), 2u);
    EXPECT_EQ(calls("cuStreamDestroy"), 1u) << "the one that was made";
}

}  // namespace
}  // namespace gpushm
